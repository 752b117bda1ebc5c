import { createJob, expect, faults, interactive, open, reaches, test } from './support';

/** A job whose program answers the notification in this way, and runs for ever. */
function program(behaviour: string): Record<string, unknown> {
  return {
    name: behaviour.replaceAll('_', '-'),
    command: ['python3', 'examples/exit_behaviours.py'],
    env: { EXIT_BEHAVIOUR: behaviour },
    replicas: 1,
    fault_tolerance: { auto_failover: true, exit_checkpoint: { enabled: true, max_wait_seconds: 58 } },
  };
}

/** Waits until the newest launch has made a step. */
async function trains(request: Parameters<typeof reaches>[0], id: string): Promise<void> {
  await expect
    .poll(async () => ((await (await request.get(`/api/v1/jobs/${id}`)).json()) as { reached_step: number | null }).reached_step, {
      timeout: 60_000,
    })
    .toBeGreaterThan(0);
}

test('a stop waits for the save, counts down, and can be ended at once', async ({ page, request }) => {
  const { job_id } = await createJob(request, program('never_saves'));
  await trains(request, job_id);
  await open(page, `/jobs/${job_id}`);
  const facts = page.getByRole('region', { name: 'Attempt 1 of 1' });
  await expect(facts.getByText('told to save before it ends: port 9000, up to 58 s')).toBeVisible();

  await page.getByText('Stop…', { exact: true }).click();
  await expect(page.getByText('The program is told to save and gets up to 58 s.').first()).toBeVisible();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await interactive(page);
  await expect(page.getByText('Saving', { exact: true }).first()).toBeVisible();
  await expect(page.getByText('It is being stopped already, and saves first.')).toBeVisible();
  const left = page.getByRole('timer').first();
  await expect(left).toHaveText(/^at most \d+ s left$/);
  const seconds = async (): Promise<number> => Number(/\d+/.exec((await left.textContent()) ?? '')?.[0]);
  const first = await seconds();
  expect(first).toBeLessThanOrEqual(58);
  await expect.poll(seconds, { timeout: 20_000 }).toBeLessThan(first);

  await page.getByRole('button', { name: 'Stop at once' }).click();
  await interactive(page);
  await reaches(request, job_id, 'stopped');
  await page.reload();
  await expect(facts.getByText('ended at once, without waiting for a save')).toBeVisible();
  await expect(page.getByRole('timer')).toHaveCount(0);
});

test('what was saved before a stop stands on the job and on its chain', async ({ page, request }) => {
  const { job_id } = await createJob(request, program('slow'));
  await trains(request, job_id);
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  await page.getByText('Stop…', { exact: true }).click();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await reaches(request, job_id, 'stopped');
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  const words = /saved at step \d+ \(\/checkpoints\/\d+\) before it was stopped/;
  await expect(page.getByRole('region', { name: 'Retry chain' }).getByText(words)).toBeVisible();
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await expect(page.getByRole('region', { name: 'Attempt 1 of 1' }).getByText(words)).toBeVisible();
  await page.getByRole('link', { name: 'Events', exact: true }).click();
  await expect(page.getByText(/^Told to save before it is stopped; it has at most 58 s\.$/)).toBeVisible();
  await expect(page.getByText(/^Saved at step \d+ before the end\.$/)).toBeVisible();
});

test('the exit notification is tested while the job runs, live and with the answer of each replica', async ({ page, request }) => {
  const { job_id } = await createJob(request, { ...program('slow'), replicas: 2 });
  await trains(request, job_id);
  await open(page, `/jobs/${job_id}`);
  const section = page.getByRole('region', { name: 'Exit ckpt Notification', exact: true });
  await expect(section.getByText(/^Not tested yet/)).toBeVisible();
  await section.getByText('Test…', { exact: true }).click();
  await expect(section.getByText(/^The program is really told to save, in every replica/)).toBeVisible();
  await expect(section.getByText(/nothing is charged\.$/)).toBeVisible();
  expect(await faults(page)).toEqual([]);
  await section.getByRole('button', { name: 'Test', exact: true }).click();
  await interactive(page);
  await expect(section.getByText(/^The test passed: 2 of 2 replicas saved/)).toBeVisible();
  const answers = section.getByRole('region', { name: 'Answers to the test by replica' });
  await expect(answers.getByRole('row', { name: /^worker-0 .* saved / })).toBeVisible();
  expect(await faults(page)).toEqual([]);
  await page.setViewportSize({ width: 320, height: 800 });
  expect(await faults(page)).toEqual([]);
  await request.post(`/api/v1/jobs/${job_id}/stop`, { data: { force: true } });
  await reaches(request, job_id, 'stopped');
});

test('a program that ends because of a test is started again, and the page says that this is not charged', async ({ page, request }) => {
  const { job_id } = await createJob(request, program('saves_and_exits'));
  await trains(request, job_id);
  const asked = await request.post(`/api/v1/jobs/${job_id}/test-exit`);
  expect(asked.status()).toBe(202);
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText('after a test of the exit notification; not charged')).toBeVisible();
  await page.getByRole('link', { name: 'Events', exact: true }).click();
  await expect(page.getByText(/^It ended because a test of Exit ckpt Notification told it to save; that is no failure and is not charged\./)).toBeVisible();
  await request.post(`/api/v1/jobs/${job_id}/stop`, { data: { force: true } });
  await reaches(request, job_id, 'stopped');
});
