import { createJob, expect, open, reaches, test } from './support';

/** A training that is still running when the test is over. */
const LONG = { command: ['python3', 'examples/train.py', '--steps', '20000'], env: {} };

test('stopping asks first, is never resubmitted, and leaves the way to resubmit and delete', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'to-stop', ...LONG });
  await reaches(request, job_id, 'running');
  await open(page, `/jobs/${job_id}`);
  await expect(page.getByText('It has not ended. Stop it first.')).toBeVisible();

  await page.getByText('Stop…', { exact: true }).click();
  await expect(page.getByText('Stop attempt 1?')).toBeVisible();
  await expect(page.getByText('A manual stop is never resubmitted, whatever budget is left.')).toBeVisible();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.getByText(/a manual stop is never resubmitted/).first()).toBeVisible({ timeout: 30_000 });
  await reaches(request, job_id, 'stopped');

  await page.getByText('Resubmit…', { exact: true }).click();
  await expect(page.getByText('It is not charged and refills no budget.')).toBeVisible();
  await page.getByRole('button', { name: 'Resubmit', exact: true }).click();
  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText('Resubmitted by hand')).toBeVisible();
  await expect(chain.getByText('not charged')).toBeVisible();
  await expect(page.getByRole('definition').filter({ hasText: '0 of 2 used, 2 left' }).first()).toBeVisible();

  await page.getByText('Delete…', { exact: true }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await expect(page).toHaveURL('/jobs');
  await expect(page.getByRole('link', { name: 'to-stop' })).toHaveCount(0, { timeout: 30_000 });
  expect((await request.get(`/api/v1/jobs/${job_id}`)).status()).toBe(404);
});

test('HTML in a name is shown as text on every page', async ({ page, request }) => {
  const name = '<img src=x onerror=alert(1)><b>bold</b>';
  const { job_id } = await createJob(request, { name });
  await reaches(request, job_id, 'succeeded');
  await open(page, `/jobs/${job_id}`);
  for (const tab of ['Overview', 'Fault Tolerance Detail', 'Logs', 'Events', 'Metrics/Loss', 'Spec']) {
    await page.getByRole('link', { name: tab, exact: true }).click();
    await expect(page.getByRole('heading', { level: 1, name })).toBeVisible();
    await expect(page).toHaveTitle(new RegExp(`, ${tab} - Holdfast$`));
  }
  await page.getByRole('link', { name: 'Jobs', exact: true }).first().click();
  await expect(page.getByRole('link', { name })).toBeVisible();
});
