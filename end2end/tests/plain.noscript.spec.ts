import { execFileSync } from 'node:child_process';

import { createJob, expect, field, idOf, reaches, test } from './support';

test('without script a job is created, refused with what was typed, followed and stopped', async ({ page, request }) => {
  await page.goto('/jobs/new?from=demo');
  await field(page, 'Name').fill('by-hand');
  await field(page, 'Replicas').fill('0');
  await page.getByRole('button', { name: 'Create job' }).click();

  await expect(page.getByText('1 field needs a change before the job can be created.')).toBeVisible();
  await expect(field(page, 'Name')).toHaveValue('by-hand');
  await expect(field(page, 'Replicas')).toHaveValue('0');
  await expect(field(page, 'Replicas')).toHaveAttribute('aria-invalid', 'true');

  await field(page, 'Replicas').fill('2');
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'by-hand' })).toBeVisible();
  const id = idOf(page);
  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  await expect(async () => {
    await page.reload();
    const check = page.getByRole('row', { name: /Attempt 1, launch 1/ });
    await expect(check.getByText('Resumed')).toBeVisible({ timeout: 500 });
  }).toPass({ timeout: 60_000 });

  await page.getByText('Stop…', { exact: true }).click();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await reaches(request, id, 'stopped');
  await expect(async () => {
    await page.reload();
    await expect(page.getByText(/a manual stop is never resubmitted/).first()).toBeVisible({ timeout: 500 });
  }).toPass({ timeout: 30_000 });
});

test('without script the server applies the rule of linked switches and lists what it changed', async ({ page }) => {
  await page.goto('/jobs/new?from=demo');
  await page.getByRole('switch', { name: 'Job Hang Detection' }).check();
  await page.getByRole('switch', { name: 'Fault Tolerance Policy' }).check();
  await page.getByRole('radio', { name: /^Full mode/ }).check();
  await field(page, 'Replicas').fill('0');
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('switch', { name: 'Job Hang Detection' })).toBeChecked();

  // From Full mode: the policy goes, and with it what needs it.
  await field(page, 'Replicas').fill('2');
  await page.getByRole('switch', { name: 'Fault Tolerance Policy' }).uncheck();
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(
    page.getByText('Job Hang Detection was turned off because it needs Fault Tolerance Policy.'),
  ).toBeVisible();
  await expect(page.getByRole('switch', { name: 'Job Hang Detection' })).not.toBeChecked();
});

test('without script the log is read, searched and filtered by address', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'plain-log', env: { FAIL_AT: '30', FAIL_KIND: 'OOM_GPU' } });
  await reaches(request, job_id, 'failed');
  await page.goto(`/jobs/${job_id}/logs`);
  await page.getByRole('searchbox', { name: 'Search the whole log' }).fill('cuda OUT of memory');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page.getByRole('log').getByText(/CUDA out of memory/i).first()).toBeVisible();
  await page.getByRole('link', { name: 'Go to line' }).click();
  await expect(page.locator(':target')).toContainText('CUDA out of memory');
});

test('without script a copy has the very same command and environment', async ({ page, request }) => {
  const env = { LINES: 'one\ntwo\r\n', QUOTED: '"a" \\ \'b\'', PADDED: ' x ', PLAIN: 'C:\\new', EMPTY: '' };
  const command = ['sh', '-c', "printf '%s\n' \"$LINES\"\n\ttrue", '', 'a b'];
  const { job_id } = await createJob(request, { name: 'original', env, command });
  await page.goto(`/jobs/new?from=${job_id}`);
  await expect(page.getByText('Nothing: it would run the same again.')).toBeVisible();
  await field(page, 'Name').fill('copy');
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'copy' })).toBeVisible();
  const copy = (await (await request.get(`/api/v1/jobs/${idOf(page)}`)).json()) as { spec: { env: unknown; command: unknown } };
  expect(copy.spec.env).toEqual(env);
  expect(copy.spec.command).toEqual(command);
  for (const id of [job_id, idOf(page)]) await request.delete(`/api/v1/jobs/${id}?force=true`);
});

test('without script Review shows the command of what is typed', async ({ page, request }) => {
  await page.goto('/jobs/new?from=demo');
  await field(page, 'Name').fill('typed');
  await page.getByRole('button', { name: 'curl' }).click();
  await expect(field(page, 'Name')).toHaveValue('typed');
  const text = await page.getByRole('region', { name: 'curl' }).innerText();
  const { job_id, name } = JSON.parse(execFileSync('bash', ['-c', text], { encoding: 'utf8' })) as { job_id: string; name: string };
  expect(name).toBe('typed');
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);
});

test('without script a manifest is checked, kept and refused with its place', async ({ page }) => {
  await page.goto('/jobs/new?from=manifest');
  await field(page, 'Manifest').fill('kind: [');
  await page.getByRole('button', { name: 'Check' }).click();
  await expect(page.getByText(/Manifest cannot be read as YAML: line 1, column 7/).first()).toBeVisible();
  await expect(field(page, 'Manifest')).toHaveValue('kind: [');

  await field(page, 'Manifest').fill('apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: asr}');
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByText(/Manifest needs a Kubernetes cluster, and local runs programs of this machine/).first()).toBeVisible();
  await expect(field(page, 'Manifest')).toHaveAttribute('aria-invalid', 'true');
});
