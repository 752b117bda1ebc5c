import { createJob, expect, faults, open, reaches, test } from './support';

test('where the time of a cluster went stands below its nodes, for the days that are chosen', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'kept',
    command: ['python3', 'examples/train.py', '--steps', '40', '--step-seconds', '0.05'],
    replicas: 1,
  });
  await reaches(request, job_id, 'succeeded');
  const ended = (await (await request.get(`/api/v1/jobs/${job_id}/chain`)).json()).ledger;
  expect(ended.kept).toBeGreaterThan(0);
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);
  // Other tests run at the same time, so that there is at least what this job kept.
  const kept = async () => (await (await request.get('/api/v1/usage?days=1')).json()).total.kept;
  await expect.poll(kept, { timeout: 30_000 }).toBeGreaterThanOrEqual(ended.kept);
  const metrics = await (await request.get('/metrics')).text();
  expect(metrics).toMatch(/holdfast_cluster_time_seconds\{cluster="local",use="kept"\} [1-9]/);

  await open(page, '/nodes');
  const section = page.getByRole('region', { name: 'Where the time went' });
  await expect(section).toContainText('ETTR');
  await expect(section.getByRole('link', { name: '7 days' })).toHaveAttribute('aria-current', 'true');
  await section.getByRole('link', { name: 'Today' }).click();
  await expect(page).toHaveURL(/\/nodes\?days=1#time$/);
  await expect(section.getByRole('link', { name: 'Today' })).toHaveAttribute('aria-current', 'true');
  await expect(section.getByRole('rowheader', { name: 'kept' })).toBeVisible();
  for (const width of [1366, 320]) {
    await page.setViewportSize({ width, height: 900 });
    expect(await faults(page)).toEqual([]);
  }
});
