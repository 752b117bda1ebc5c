import { createJob, expect, faults, open, reaches, test } from './support';

/** A job that has failed on all four nodes. */
const BROKEN = { command: ['sh', '-c', 'exit 1'], env: {}, replicas: 4, accelerators_per_replica: 2, fault_tolerance: {} };

test('a faulty node is found from the page of a failed job, with plan and cost said first', async ({ page, request }) => {
  test.setTimeout(240_000);
  const { job_id } = await createJob(request, { name: 'broken', ...BROKEN });
  await reaches(request, job_id, 'failed');
  await open(page, `/jobs/${job_id}`);
  await page.getByRole('link', { name: 'Diagnose…' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Which node makes broken fail?' })).toBeVisible();
  await expect(page.getByText('2 rounds + 2 checks')).toBeVisible();
  await expect(page.getByText('Takes at most')).toBeVisible();
  expect(await faults(page)).toEqual([]);

  await page.getByLabel('Command of your own').fill('test "$HOLDFAST_NODE" != node-2');
  await page.getByRole('button', { name: 'Start diagnosis' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Bisect #1' })).toBeVisible();
  await expect(page.getByText('node-2 suspected', { exact: true })).toBeVisible({ timeout: 180_000 });
  const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: 'node-2', exact: true }) });
  await expect(row).toContainText('suspected');
  await expect(page.getByText(/^node-2 is quarantined for/)).toBeVisible();
  expect(await faults(page)).toEqual([]);

  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Diagnose' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'broken' })).toContainText('Suspects found');
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByRole('link', { name: 'bisect #1' })).toBeVisible();
  await expect(chain.getByText('not charged')).toBeVisible();
  await open(page, '/nodes/node-2');
  await page.getByRole('link', { name: /^Confirmed by diagnosis #1/ }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Bisect #1' })).toBeVisible();
  // All tests share the nodes.
  expect((await request.post('/api/v1/nodes/node-2/release', { data: {} })).ok()).toBe(true);
});

test('what cannot be begun says why', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'whole', ...BROKEN });
  await reaches(request, job_id, 'failed');
  await open(page, `/diagnose/new?job=${job_id}`);
  await page.getByLabel('Time limit of one test, seconds').fill('soon');
  await page.getByLabel('Command of your own').fill('true');
  await page.getByRole('button', { name: 'Start diagnosis' }).click();
  await expect(page.getByText('limit_seconds: must be a whole number of seconds')).toBeVisible();
  await expect(page.getByLabel('Command of your own')).toHaveValue('true');
});
