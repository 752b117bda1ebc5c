import { createJob, expect, open, reaches, test } from './support';

/** Samples each second, and three seconds without movement are a hang. */
const full = {
  auto_failover: true,
  max_task_restarts: 1,
  policy: { enabled: true },
  hang_detection: { enabled: true, interval_seconds: 1, window_seconds: 3, start_after_seconds: 1 },
};

test('a job that stands still is found, restarted in place, and names the rank', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'stands-still',
    command: ['python3', 'examples/hangs.py', '--steps', '20'],
    env: { HANG: 'loop', HANG_AT: '5', HANG_RANK: '1' },
    fault_tolerance: full,
  });
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  await reaches(request, job_id, 'succeeded');

  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText(/in place 1 of 1/).first()).toBeVisible();
  await expect(page.getByRole('row', { name: /Attempt 1, launch 1/ }).getByText('Started fresh')).toBeVisible();

  const incidents = page.getByRole('region', { name: 'Incidents' });
  const record = incidents.locator('details').first();
  if (!(await record.getAttribute('open'))) await record.locator('summary').first().click();
  await expect(record.getByText(/^no progress for/).first()).toBeVisible();
  for (const witness of ['Stacks', 'Output', 'CPU time', 'Steps', 'Checkpoints']) {
    await expect(record.getByText(witness, { exact: true })).toBeVisible();
  }
  await expect(record.getByText(/^Rank 1 on /)).toBeVisible();
  const odd = record.getByRole('listitem').filter({ hasText: 'the others wait for it' });
  await expect(odd).toContainText('compute_for_ever');
  await expect(odd).toContainText('rank 1');

  const download = page.waitForEvent('download');
  await record.getByRole('link', { name: 'Download all stacks' }).click();
  const file = await download;
  expect(file.suggestedFilename()).toMatch(/-stacks\.txt$/);
});

test('the form says what hang detection needs, and that a window is shorter than what was seen', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'quiet',
    command: ['python3', 'examples/hangs.py', '--steps', '8'],
    env: { SLOW: 'evaluation', SLOW_SECONDS: '6', SLOW_AT: '3' },
    fault_tolerance: { ...full, hang_detection: { ...full.hang_detection, window_seconds: 3 } },
  });
  await reaches(request, job_id, 'succeeded');
  await open(page, `/jobs/new?from=${job_id}`);
  await expect(page.getByText(/went on after [4-9] s without progress while evaluating/)).toBeVisible();
  await expect(page.getByText(/ptrace_scope 0 or 1/)).toBeVisible();
  await page.getByLabel('Hang Determination Duration').fill('60');
  await expect(page.getByText(/went on after/)).toHaveCount(0);
});
