import { createJob, expect, faults, open, reaches, test } from './support';

/** Whatever a test did, the node is let in again for those that follow. */
test.afterEach(async ({ request }) => {
  await request.post('/api/v1/nodes/node-3/release', { data: {} });
});

test('a node is quarantined with the forecast in sight, kept off by a new job, and released', async ({ page, request }) => {
  await open(page, '/nodes');
  await page.getByRole('region', { name: 'Map' }).getByRole('link', { name: 'node-3' }).click();
  await expect(page).toHaveURL(/\/nodes\/node-3$/);
  await expect(page.getByText(/Quarantine node-3\?/)).toBeVisible();
  await expect(page.getByText(/[123] of 4 left, \d free/)).toBeVisible();
  expect(await faults(page)).toEqual([]);

  await page.getByRole('button', { name: 'Quarantine node-3' }).click();
  await expect(page.getByText('has 1 to 300 characters')).toBeVisible();
  await page.getByRole('textbox', { name: 'Reason' }).fill('link flap under load');
  await page.getByRole('combobox', { name: 'Until' }).selectOption('24 hours from now');
  const confirm = page.getByRole('checkbox', { name: /keeps these jobs from starting/ });
  if (await confirm.count()) await confirm.check();
  await page.getByRole('button', { name: 'Quarantine node-3' }).click();
  await expect(page.getByText('Quarantined', { exact: true })).toBeVisible();
  await expect(page.getByRole('region', { name: 'Who changed how this node stands' })).toContainText('link flap under load');
  for (const width of [1366, 320]) {
    await page.setViewportSize({ width, height: 900 });
    expect(await faults(page)).toEqual([]);
  }

  const { job_id } = await createJob(request, { name: 'elsewhere', env: {}, replicas: 3 });
  await reaches(request, job_id, 'succeeded');
  const chain = await (await request.get(`/api/v1/jobs/${job_id}/chain`)).json();
  expect(chain.attempts[0].avoided_nodes).toContain('node-3');
  expect(chain.attempts[0].nodes).not.toContain('node-3');

  await page.setViewportSize({ width: 1366, height: 900 });
  await page.goto('/nodes');
  const row = page.getByRole('row', { name: /^node-3 / });
  await expect(row).toContainText('link flap under load');
  await expect(row).toContainText('every job');
  expect(await faults(page)).toEqual([]);
  await row.getByRole('link', { name: /^Release/ }).click();
  await page.getByText('Release…', { exact: true }).click();
  await page.getByRole('button', { name: 'Release', exact: true }).click();
  await expect(page.getByText('Ready', { exact: true })).toBeVisible();
  await expect(page.getByText('node-3 was released.', { exact: false })).toBeVisible();
});
