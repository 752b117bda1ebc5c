import { createJob, expect, interactive, open, reaches, test } from './support';

/** What a page of a job needs beside the first page's program. */
const PART = /\/pkg\/split_job\..*\.wasm$/;

test('each file of a page is loaded once, and a page of another part brings that along', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'in-parts' });
  await reaches(request, job_id, 'succeeded');
  const loaded: string[] = [];
  page.on('requestfinished', (asked) => {
    const path = new URL(asked.url()).pathname;
    if (path.startsWith('/pkg/')) loaded.push(path);
  });
  await open(page, '/jobs');
  expect(loaded.some((path) => PART.test(path)), 'the list needs no part').toBe(false);
  await page.getByRole('link', { name: 'in-parts' }).first().click();
  await expect(page.getByRole('heading', { level: 1, name: 'in-parts' })).toBeVisible();
  expect(loaded.filter((path) => PART.test(path))).toHaveLength(1);

  // Opened by its address, a page asks for its parts early, and once.
  loaded.length = 0;
  const fresh = await page.context().browser()!.newContext();
  const other = await fresh.newPage();
  const warnings: string[] = [];
  other.on('console', (message) => warnings.push(message.text()));
  other.on('requestfinished', (asked) => loaded.push(new URL(asked.url()).pathname));
  await open(other, new URL(`/jobs/${job_id}/fault-tolerance`, page.url()).href);
  const wasm = loaded.filter((path) => path.endsWith('.wasm'));
  expect(wasm.some((path) => PART.test(path))).toBe(true);
  expect(new Set(wasm).size).toBe(wasm.length);
  expect(warnings).toEqual([]);
  await fresh.close();
});

test('a page whose part is gone, as after an update, is opened as a document and works without scripts', async ({
  page,
  request,
  complaints,
}) => {
  const { job_id } = await createJob(request, { name: 'half-gone' });
  await reaches(request, job_id, 'succeeded');
  await open(page, '/jobs');
  await page.route(PART, (route) => route.fulfill({ status: 404 }));
  const documents: string[] = [];
  page.on('domcontentloaded', (loaded) => documents.push(new URL(loaded.url()).pathname));
  await page.getByRole('link', { name: 'half-gone' }).first().click();
  await expect(page.getByRole('heading', { level: 1, name: 'half-gone' })).toBeVisible();
  // The part is missing from the new document too, which stays all the same.
  await page.waitForLoadState('networkidle');
  expect(documents).toEqual([`/jobs/${job_id}`]);
  await page.getByRole('link', { name: 'Events', exact: true }).click();
  await expect(page.getByRole('table', { name: /^Events/ })).toBeVisible();
  await page.waitForLoadState('networkidle');
  expect(documents).toEqual([`/jobs/${job_id}`, `/jobs/${job_id}/events`]);
  await expect(page.locator('html')).not.toHaveAttribute('data-interactive', '');

  await page.unroute(PART);
  await page.reload();
  await interactive(page);
  // Only the part itself, and its loader's word about it.
  const others = complaints.splice(0).filter((text) => !/\/pkg\/(split_job|__wasm_split)\./.test(text));
  expect(others).toEqual([]);
});
