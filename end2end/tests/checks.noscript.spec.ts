import { expect, field, idOf, test } from './support';

test('without script health checks are chosen, kept over an error, and sent', async ({ page, request }) => {
  await page.goto('/jobs/new?from=demo');
  await page.getByRole('checkbox', { name: 'Devices' }).uncheck();
  await field(page, 'Own check command').fill("test 'open");
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(field(page, 'Own check command')).toHaveAttribute('aria-invalid', 'true');
  await expect(page.getByRole('checkbox', { name: 'Devices' })).not.toBeChecked();
  await expect(page.getByRole('checkbox', { name: 'Clock' })).toBeChecked();

  await field(page, 'Own check command').fill('');
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'demo' })).toBeVisible();
  const id = idOf(page);
  const { spec } = (await (await request.get(`/api/v1/jobs/${id}`)).json()) as {
    spec: { fault_tolerance: { health_checks: unknown } };
  };
  expect(spec.fault_tolerance.health_checks).toEqual({
    enabled: true,
    checks: ['checkpoint_dir', 'shm', 'rendezvous', 'clock', 'kernel_log'],
    command: null,
  });
  await request.delete(`/api/v1/jobs/${id}?force=true`);
});
