import { createJob, expect, reaches, test } from './support';

test('without script the exit notification is tested, and refused where nothing runs', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'saves',
    command: ['python3', 'examples/exit_behaviours.py'],
    env: { EXIT_BEHAVIOUR: 'saves' },
    replicas: 1,
    fault_tolerance: { auto_failover: true, exit_checkpoint: { enabled: true, max_wait_seconds: 60 } },
  });
  const view = async (): Promise<{ refusal: string | null; test: { ended_at: string | null } | null }> =>
    (await (await request.get(`/api/v1/jobs/${job_id}/test-exit`)).json()) as Awaited<ReturnType<typeof view>>;
  await expect.poll(async () => (await view()).refusal, { timeout: 60_000 }).toBeNull();
  await page.goto(`/jobs/${job_id}`);
  const section = page.getByRole('region', { name: 'Exit ckpt Notification', exact: true });
  await section.getByText('Test…', { exact: true }).click();
  await section.getByRole('button', { name: 'Test', exact: true }).click();
  await expect.poll(async () => (await view()).test?.ended_at ?? null).not.toBeNull();
  await page.reload();
  await expect(section.getByText(/^The test passed: 1 of 1 replica saved/)).toBeVisible();
  await expect(section.getByText(/^Asked for by /)).toBeVisible();

  await request.post(`/api/v1/jobs/${job_id}/stop`, { data: { force: true } });
  await reaches(request, job_id, 'stopped');
  await page.reload();
  await expect(section.getByText('It is stopped. Only a program that runs can be told to save.')).toBeVisible();
  await expect(section.getByText(/^The test passed/)).toBeVisible();
});
