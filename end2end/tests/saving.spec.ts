import { createJob, expect, interactive, open, reaches, test } from './support';

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
