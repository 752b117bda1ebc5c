import { createJob, expect, faults, field, freshDirectory, idOf, open, reaches, test } from './support';

/** A hang is resubmitted at once. */
const full = {
  auto_failover: true,
  max_task_restarts: 1,
  policy: { enabled: true },
  hang_detection: { enabled: true, interval_seconds: 1, window_seconds: 3, start_after_seconds: 1, max_in_place_restarts: 0 },
};

test('a job that asks for it has its nodes diagnosed after a hang, and the chain shows that', async ({ page, request }) => {
  test.setTimeout(240_000);
  const like = await createJob(request, { name: 'asks', command: ['true'], env: {}, fault_tolerance: full });
  await reaches(request, like.job_id, 'succeeded');
  await open(page, `/jobs/new?from=${like.job_id}`);
  await field(page, 'Command').fill('python3 examples/hangs.py --steps 20');
  await field(page, 'Environment').fill('HANG=loop\nHANG_AT=5\nHANG_RANK=1');
  await field(page, 'Checkpoint directory').fill(freshDirectory());
  const tick = page.getByRole('checkbox', { name: 'Diagnose the nodes before a resubmission after a hang' });
  await expect(tick).not.toBeChecked();
  await tick.check();
  expect(await faults(page)).toEqual([]);
  await page.getByRole('button', { name: 'Create job' }).click();
  await page.waitForURL(/\/jobs\/j/);
  const job_id = idOf(page);

  await open(page, `/jobs/${job_id}/fault-tolerance`);
  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText('by the policy, rule comm-hang-bisect')).toBeVisible({ timeout: 60_000 });
  // A run may be over in a moment; that the job is diagnosing meanwhile is seen by the tests of the engine and of the whole system.
  await reaches(request, job_id, 'succeeded');
  await expect(chain.getByText('Resubmitted automatically')).toBeVisible();
  await expect(page.getByText('1 resubmission, 1 diagnosis', { exact: true })).toBeVisible();
  const record = page.getByRole('region', { name: 'Incidents' }).locator('details').first();
  if (!(await record.getAttribute('open'))) await record.locator('summary').first().click();
  await expect(record.getByText('First rule')).toContainText('comm-hang-bisect');
  expect(await faults(page)).toEqual([]);

  await page.setViewportSize({ width: 320, height: 800 });
  expect(await faults(page)).toEqual([]);
  await chain.getByRole('link', { name: 'bisect #1' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Bisect #1' })).toBeVisible();
  await expect(page.getByText('by the policy, rule comm-hang-bisect')).toBeVisible();
});
