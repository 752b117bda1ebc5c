import { expect, test } from './support';

test('without script a node is quarantined, refused without a reason, and released', async ({ page }) => {
  await page.goto('/nodes/node-4');
  await page.getByRole('button', { name: 'Quarantine node-4' }).click();
  await expect(page.getByText('has 1 to 300 characters')).toBeVisible();
  await page.getByRole('textbox', { name: 'Reason' }).fill('by hand');
  const confirm = page.getByRole('checkbox', { name: /keeps these jobs from starting/ });
  if (await confirm.count()) await confirm.check();
  await page.getByRole('button', { name: 'Quarantine node-4' }).click();
  await expect(page.getByText('Quarantined', { exact: true })).toBeVisible();
  await page.getByText('Release…', { exact: true }).click();
  await page.getByRole('button', { name: 'Release', exact: true }).click();
  await expect(page.getByText('Ready', { exact: true })).toBeVisible();
});
