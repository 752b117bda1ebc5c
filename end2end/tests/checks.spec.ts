import { createJob, expect, field, idOf, open, reaches, test } from './support';

test('health checks are chosen in the form, and one that fails is shown with its remedy', async ({ page, request }) => {
  await open(page, '/jobs/new?from=demo');
  const checks = page.getByRole('switch', { name: 'Health checks before training' });
  await expect(checks).toBeChecked();
  await expect(page.getByRole('checkbox', { name: 'Kernel log' })).toBeChecked();
  await page.getByRole('checkbox', { name: 'Kernel log' }).uncheck();
  await field(page, 'Name').fill('unhealthy');
  await field(page, 'Own check command').fill(`sh -c 'test $RANK = 0 || { echo "<b>disk</b> is slow"; exit 3; }'`);
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'unhealthy' })).toBeVisible();
  const id = idOf(page);
  await reaches(request, id, 'failed');

  await open(page, `/jobs/${id}/fault-tolerance`);
  await expect(page.getByText('Health checks: 1 failed, training did not start')).toBeVisible();
  await expect(page.getByText(/own command failed in worker-0 on/).first()).toBeVisible();
  const incident = page.locator('details', { hasText: 'What to change' }).last();
  await expect(incident).toContainText('exit 3; it said: <b>disk</b> is slow');
  await expect(incident).toContainText('See what the command reports, mend that on this node');
  await expect(incident).toContainText('worker-0, health check before training, root');
  await expect(incident.getByRole('link', { name: 'Open in Logs' })).toHaveCount(0);

  await open(page, `/jobs/${id}/events`);
  await expect(page.getByText(/Training does not begin\./).first()).toBeVisible();

  const job = (await (await request.get(`/api/v1/jobs/${id}`)).json()) as {
    spec: { fault_tolerance: { health_checks: { checks: string[]; command: string[] } } };
  };
  const { checks: chosen, command } = job.spec.fault_tolerance.health_checks;
  expect(chosen).toEqual(['checkpoint_dir', 'shm', 'rendezvous', 'clock', 'devices']);
  expect(command[0]).toBe('sh');
  await request.delete(`/api/v1/jobs/${id}?force=true`);
});

test('a healthy job says which checks passed and which were skipped', async ({ page, request }) => {
  const { job_id: id } = await createJob(request, { name: 'healthy', env: {} });
  await reaches(request, id, 'succeeded');
  await open(page, `/jobs/${id}/fault-tolerance`);
  const summary = page.getByText(/^Health checks: \d passed, \d skipped$/).first();
  await expect(summary).toBeVisible();
  await summary.click();
  await expect(page.getByText(/devices: skipped in .*the replica asks for no NVIDIA device/)).toBeVisible();
  await expect(page.getByText(/checkpoint directory: passed in .*on the disk in/)).toBeVisible();
  await request.delete(`/api/v1/jobs/${id}?force=true`);
});
