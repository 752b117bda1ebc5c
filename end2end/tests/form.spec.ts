import { execFileSync } from 'node:child_process';

import { body, createJob, expect, field, idOf, open, reaches, test } from './support';

test('linked switches say what moved and why, and it can be undone', async ({ page }) => {
  await open(page, '/jobs/new');
  const [failover, policy, hang] = ['Auto Failover', 'Fault Tolerance Policy', 'Job Hang Detection'].map((name) =>
    page.getByRole('switch', { name }),
  );
  await expect(hang).toBeDisabled();
  await expect(page.getByText('Needs Auto Failover, which is off.').first()).toBeVisible();

  await failover.check();
  await hang.check();
  await expect(policy).toBeChecked();
  const told = page.getByRole('status').filter({ hasText: 'Turned on because Job Hang Detection needs it.' });
  await expect(told).toBeVisible();
  await expect(page.getByRole('radio', { name: /^Full mode/ })).toBeChecked();
  await told.getByRole('button', { name: 'Undo' }).click();
  await expect(policy).not.toBeChecked();
  await expect(hang).not.toBeChecked();
  await expect(page.getByRole('radio', { name: /^Basic mode/ })).toBeChecked();

  await page.getByRole('radio', { name: /^Full mode/ }).check();
  await policy.uncheck();
  await expect(hang).not.toBeChecked();
  await expect(page.getByText('Turned off because it needs Fault Tolerance Policy.')).toBeVisible();
});

test('a RayJob disables what is for PyTorch, with the reason, and gives it back', async ({ page }) => {
  await open(page, '/jobs/new?from=demo');
  const policy = page.getByRole('switch', { name: 'Fault Tolerance Policy' });
  await expect(policy).toBeChecked();
  await page.getByRole('radio', { name: 'RayJob', exact: true }).check();
  await expect(policy).toBeDisabled();
  await expect(policy).not.toBeChecked();
  await expect(page.getByText('RayJob uses basic mode.', { exact: false }).first()).toBeVisible();
  await expect(field(page, 'Processes in each replica')).toBeDisabled();
  await page.getByRole('radio', { name: 'PyTorchJob', exact: true }).check();
  await expect(field(page, 'Processes in each replica')).toBeEnabled();
  await expect(policy).toBeEnabled();
  await expect(policy).toBeChecked();
});

test('errors are gathered in a summary that has the focus and leads to the fields', async ({ page, request }) => {
  await open(page, '/jobs/new?from=demo');
  await field(page, 'Name').fill('');
  await field(page, 'Maximum Task Restart Attempts').fill('-1');
  await page.getByRole('button', { name: 'Create job' }).click();

  const summary = page.getByRole('alert').filter({ hasText: '2 fields need a change' });
  await expect(summary).toBeVisible();
  await expect(summary).toBeFocused();
  const link = summary.getByRole('link', { name: /Maximum Task Restart Attempts/ });
  await link.click();
  const restarts = field(page, 'Maximum Task Restart Attempts');
  await expect(restarts).toBeFocused();
  await expect(restarts).toHaveAttribute('aria-invalid', 'true');
  await expect(field(page, 'Name')).toHaveAttribute('aria-invalid', 'true');

  // The interface says the same about the same value, and creates nothing either.
  const refused = await request.post('/api/v1/jobs', {
    data: body({ fault_tolerance: { auto_failover: true, max_task_restarts: -1 } }),
  });
  expect(refused.status()).toBe(422);
  const { errors } = (await refused.json()) as { errors: { field: string; message: string }[] };
  expect(errors.map((error) => error.field)).toEqual(['fault_tolerance.max_task_restarts']);
  await expect(summary).toContainText(errors[0].message);

  await field(page, 'Name').fill('mended');
  await restarts.fill('0');
  await expect(page.getByText(/^0 is never resubmitted/)).toBeVisible();
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'mended' })).toBeVisible();
  await request.delete(`/api/v1/jobs/${idOf(page)}?force=true`);
});

test('a time may have a unit and is shown in seconds', async ({ page }) => {
  await open(page, '/jobs/new?from=demo');
  await page.getByRole('switch', { name: 'Job Hang Detection' }).check();
  await field(page, 'Hang Determination Duration').fill('10m');
  await expect(page.getByText('= 600 s')).toBeVisible();
});

test('Review shows the job as YAML, JSON and curl, and the command creates it when it is pasted', async ({ page, request }) => {
  await open(page, '/jobs/new?from=demo');
  await field(page, 'Name').fill("it's pasted");
  await field(page, 'Environment').fill('FAIL_AT=40\nODD="two\\nlines, a \\"quote\\" and $HOME"');
  const views = page.getByRole('group', { name: 'Show the job as' });
  await views.getByRole('button', { name: 'YAML' }).click();
  await expect(page.getByRole('region', { name: 'YAML' })).toContainText('FAIL_AT: "40"');
  await views.getByRole('button', { name: 'JSON' }).click();
  await expect(page.getByRole('region', { name: /^JSON/ })).toContainText('"auto_failover": true');
  await expect(page.getByRole('region', { name: /^JSON/ })).not.toContainText('interval_seconds');

  await views.getByRole('button', { name: 'curl' }).click();
  const command = await page.getByRole('region', { name: 'curl' }).innerText();
  const { job_id } = JSON.parse(execFileSync('bash', ['-c', command], { encoding: 'utf8' })) as { job_id: string };
  const job = (await (await request.get(`/api/v1/jobs/${job_id}`)).json()) as { name: string; spec: { env: Record<string, string> } };
  expect(job.name).toBe("it's pasted");
  expect(job.spec.env).toEqual({ FAIL_AT: '40', ODD: 'two\nlines, a "quote" and $HOME' });
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);

  await field(page, 'Replicas').fill('0');
  await expect(page.getByText('Told once every field is filled in and allowed.')).toBeVisible();
});

test('a filter is taken away without losing what is typed beside it', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'filtered' });
  await open(page, '/jobs?kind=pytorchjob&owner=nobody');
  await page.getByRole('searchbox', { name: 'Name, id or image' }).fill('filtered');
  await page.getByRole('button', { name: 'Remove filter owner: nobody' }).click();
  await expect(page.getByRole('link', { name: 'filtered', exact: true })).toBeVisible();
  await expect(page.getByRole('searchbox', { name: 'Name, id or image' })).toHaveValue('filtered');
  await expect(page.getByRole('textbox', { name: 'Owner' })).toHaveValue('');
  await expect(page.getByRole('list', { name: 'Filters in use' }).getByRole('listitem')).toHaveText(['text: filtered', 'kind: PyTorchJob']);
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);
});

test('a copy leads to its original, which is live and compared with nothing', async ({ page, request, complaints }) => {
  const original = await createJob(request, { name: 'the-original', command: ['sleep', '600'], env: {}, replicas: 1 });
  const changes = { name: 'the-copy', command: ['true'] };
  const answer = await request.post(`/api/v1/jobs/${original.job_id}/resubmit`, { data: { as: 'job', changes } });
  const copy = (await answer.json()) as { job_id: string };
  await reaches(request, original.job_id, 'running');
  await reaches(request, copy.job_id, 'succeeded');

  await open(page, `/jobs/${copy.job_id}/spec`);
  const differences = page.getByRole('table', { name: 'Settings that differ' });
  await expect(differences.getByRole('row', { name: /Command/ })).toContainText('sleep 600');
  await differences.getByRole('link', { name: original.job_id }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'the-original' })).toBeVisible();
  await expect(page.getByRole('textbox', { name: 'Job ID' })).toHaveValue('');
  await expect(page.getByText('Nothing: both run the same.')).toHaveCount(0);

  await page.goBack();
  await expect(page.getByRole('heading', { level: 1, name: 'the-copy' })).toBeVisible();
  await page.getByRole('link', { name: original.job_id, exact: true }).first().click();
  await expect(page.getByRole('heading', { level: 1, name: 'the-original' })).toBeVisible();
  await request.post(`/api/v1/jobs/${original.job_id}/stop`, { data: { force: true } });
  await expect(page.getByText('Stopped', { exact: true }).first(), 'its own changes arrive').toBeVisible();
  for (const id of [original.job_id, copy.job_id]) await request.delete(`/api/v1/jobs/${id}?force=true`);
  expect(complaints).toEqual([]);
});

test('a manifest is read by the server when its field is left, and what is wrong is told beside it', async ({ page }) => {
  await open(page, '/jobs/new?from=manifest');
  const manifest = field(page, 'Manifest');
  await manifest.fill('kind: Job\napiVersion: batch/v1');
  await page.getByRole('button', { name: 'Check' }).click();
  await expect(page.getByText(/needs a Kubernetes cluster/).first()).toBeVisible();
  await manifest.fill('a: 1\na: 2');
  await expect(page.getByText('Told once the manifest has been read: press Check.')).toBeVisible();
  await field(page, 'Name').focus();
  await expect(page.getByText(/line 2, column 1: duplicate mapping key: a/).first()).toBeVisible();
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('alert').filter({ hasText: '1 field needs a change' })).toBeFocused();
});
