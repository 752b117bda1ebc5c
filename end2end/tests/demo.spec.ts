import { deleteAllJobs } from '../jobs';
import { expect, field, interactive, test } from './support';

test('the first visit leads to a job that fails, restarts in place and resumes, all without a reload', async ({ baseURL, page }) => {
  await deleteAllJobs(baseURL as string);
  await page.goto('/');
  await expect(page).toHaveURL('/jobs');
  await interactive(page);
  await page.getByRole('link', { name: 'Create the demo job' }).click();

  await expect(page.getByRole('heading', { level: 1, name: 'Create job' })).toBeVisible();
  await expect(field(page, 'Name')).toHaveValue('demo');
  await expect(field(page, 'Environment')).toHaveValue('FAIL_AT=40');
  await expect(page.getByRole('switch', { name: 'Fault Tolerance Policy' })).toBeChecked();
  // A second demo must fail too, so it has a directory of its own.
  await expect(field(page, 'Checkpoint directory')).toHaveValue(/^checkpoints\/demo-\d+$/);
  await page.getByRole('button', { name: 'Create job' }).click();

  await expect(page.getByRole('heading', { level: 1, name: 'demo' })).toBeVisible();
  await interactive(page);
  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  await page.evaluate(() => document.documentElement.setAttribute('data-not-reloaded', ''));

  const check = page.getByRole('row', { name: /Attempt 1, launch 1/ });
  await expect(check.getByText('Resumed')).toBeVisible({ timeout: 60_000 });
  await expect(check.getByText('ok', { exact: true })).toHaveCount(4);
  await expect(page.getByRole('definition').filter({ hasText: '1 in place' }).first()).toBeVisible();
  await expect(page.getByRole('region', { name: 'Incidents' }).getByText('Restarted in place; this creates no new task.')).toBeVisible();
  await expect(page.locator('html')).toHaveAttribute('data-not-reloaded', '');
});
