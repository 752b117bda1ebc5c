import type { Page } from '@playwright/test';

import { createJob, expect, idOf, open, reaches, test } from './support';

/** A training that prints a line a step and is still running when the test is over. */
const LONG = { command: ['python3', 'examples/train.py', '--steps', '20000', '--step-seconds', '0.05'], env: {} };

test('the main task by keyboard alone: find a job, read its chain, its evidence and its curve', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'by-keys',
    env: { FAIL_AT: '15,35', FAIL_KIND: 'app_error,hw_node' },
  });
  await reaches(request, job_id, 'succeeded');
  const keys = page.keyboard;
  await open(page, '/nodes');

  await keys.press('/');
  await expect(page.getByRole('searchbox', { name: /^Find a job/ })).toBeFocused();
  // Letters of shortcuts are letters while one types.
  await keys.type('by-keys');
  await keys.press('Enter');
  await expect(page).toHaveURL(/\/jobs\?q=by-keys/);
  await expect(page.getByRole('row', { name: /by-keys/ })).toHaveCount(1);
  await keys.press('Escape');
  await keys.press('j');
  await expect(page.getByRole('link', { name: 'by-keys' })).toBeFocused();
  await keys.press('Enter');
  await expect(page.getByRole('heading', { level: 1, name: 'by-keys' })).toBeVisible();
  expect(idOf(page)).toBe(job_id);

  await keys.press('2');
  await expect(page).toHaveURL(/\/fault-tolerance$/);
  const attempts = page.getByRole('navigation', { name: 'Attempts' });
  await expect(attempts.getByText('Attempt 2 of 2')).toBeVisible();
  await keys.press('[');
  await expect(attempts.getByText('Attempt 1 of 2')).toBeVisible();
  await keys.press(']');
  await expect(attempts.getByText('Attempt 2 of 2')).toBeVisible();

  await keys.press('3');
  await expect(page).toHaveURL(/\/logs$/);
  await expect(page.getByRole('log')).toBeVisible();
  await keys.press('[');
  await expect(attempts.getByText('Attempt 1 of 2')).toBeVisible();
  await keys.press('n');
  const hit = page.locator('[role=log] [data-hit]').first().getByRole('link');
  await expect(hit).toBeFocused();
  await expect(hit).toBeInViewport();

  for (const [key, tab] of [
    ['4', 'events'],
    ['5', 'metrics'],
    ['6', 'spec'],
  ]) {
    await keys.press(key);
    await expect(page).toHaveURL(new RegExp(`/${tab}$`));
  }
  await keys.press('g');
  await keys.press('n');
  await expect(page).toHaveURL(/\/nodes$/);
  await keys.press('c');
  await expect(page).toHaveURL(/\/jobs\/new$/);
});

test('Esc takes back what an input method composes and leaves the field to it', async ({ page }) => {
  await open(page, '/jobs');
  await page.keyboard.press('/');
  const find = page.getByRole('searchbox', { name: /^Find a job/ });
  await expect(find).toBeFocused();
  const escape = (isComposing: boolean) =>
    find.evaluate((field, isComposing) => {
      field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', isComposing, bubbles: true }));
    }, isComposing);
  await escape(true);
  await expect(find).toBeFocused();
  await escape(false);
  await expect(find).not.toBeFocused();
});

test('the list of shortcuts opens, closes and leads to where they are turned off', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'without-keys', env: {}, replicas: 1 });
  await open(page, '/jobs');
  const create = page.getByRole('link', { name: /Create/ }).first();
  await create.focus();
  await page.keyboard.press('?');
  const list = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  await expect(list).toBeFocused();
  for (const what of ['Find a job', 'Attempt before, next attempt', 'Tab of a job', 'Follow the log, or stop', 'Next hit in the log, hit before']) {
    await expect(list.getByText(what)).toBeVisible();
  }
  await page.keyboard.press('Escape');
  await expect(list).toHaveCount(0);
  await expect(create).toBeFocused();

  await page.keyboard.press('?');
  await list.getByRole('link', { name: 'Turn them off' }).click();
  await page.getByRole('checkbox', { name: /shortcuts/i }).uncheck();
  await page.getByRole('button', { name: 'Save' }).click();
  await open(page, `/jobs/${job_id}`);
  await expect(page.getByRole('link', { name: 'Spec' })).toBeVisible();
  await expect(page.locator('[aria-keyshortcuts]'), 'keys that do nothing').toHaveCount(0);
  await open(page, '/jobs');
  await page.keyboard.press('c');
  await page.keyboard.press('?');
  await expect(list).toHaveCount(0);
  await expect(page).toHaveURL(/\/jobs$/);
});

test('a log is followed: it pauses on errors, counts what is not seen, and ends with its launch', async ({ page, request, complaints }) => {
  const { job_id } = await createJob(request, { name: 'to-follow', replicas: 1, ...LONG });
  await reaches(request, job_id, 'running');
  const log = page.getByRole('log');
  await expect(async () => {
    await open(page, `/jobs/${job_id}/logs`);
    await expect(log.getByText(/step=/).first()).toBeVisible({ timeout: 1_000 });
  }).toPass();
  await expect(log.getByRole('button', { name: 'Following' })).toBeVisible();

  // Scrolled up: the view stays, and what is new is counted.
  await log.evaluate((region) => region.scrollTo(0, 0));
  await expect(log.getByRole('button', { name: /^[\d,]+ new lines?$/ })).toBeVisible();
  expect(await log.evaluate((region) => region.scrollTop)).toBe(0);
  await page.keyboard.press('f');
  await expect(log.getByRole('button', { name: 'Following' })).toBeVisible();

  let failed = 0;
  await page.route(/\/sfn\/get_logs/, async (route) => {
    failed += 1;
    await route.abort();
  });
  await expect(log.getByText(/^Paused; as of \d\d:\d\d:\d\d UTC\./)).toBeVisible();
  expect(failed).toBeLessThan(4);
  await page.unroute(/\/sfn\/get_logs/);
  await log.getByRole('button', { name: 'Try again' }).click();
  await expect(log.getByText(/^Paused/)).toHaveCount(0);
  complaints.length = 0; // of the answers that were kept from it

  await request.post(`/api/v1/jobs/${job_id}/stop`, { data: { force: true } });
  await reaches(request, job_id, 'stopped');
  await expect(log.getByText('The launch ended.')).toBeVisible({ timeout: 30_000 });
  await expect(log.getByRole('button')).toHaveCount(0);
});

/** Makes the page believe that its tab is hidden, or shown. */
async function hide(page: Page, hidden: boolean): Promise<void> {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
  }, hidden);
}

test('a tab that is hidden for a minute gives its stream back, and catches up when it is shown', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'out-of-sight', replicas: 1, ...LONG });
  await reaches(request, job_id, 'running');
  await page.clock.install();
  const heard = page.waitForRequest((sent) => sent.url().endsWith(`/jobs/${job_id}/stream`));
  await open(page, `/jobs/${job_id}`);
  await heard;
  await expect(page.getByText(/^live /)).toBeVisible();

  await hide(page, true);
  await page.clock.fastForward(61_000);
  await expect(page.getByText(/^Live updates paused; as of/)).toBeVisible();
  await request.post(`/api/v1/jobs/${job_id}/stop`, { data: { force: true } });
  await reaches(request, job_id, 'stopped');
  await expect(page.getByText('Running', { exact: true }).first()).toBeVisible();

  const again = page.waitForRequest(/\/stream\?last_event_id=/);
  await hide(page, false);
  await again;
  await expect(page.getByText(/\d+ changes? loaded/)).toBeVisible();
  await expect(page.getByText(/^live /)).toBeVisible();
  await expect(page.getByText(/a manual stop is never resubmitted/).first()).toBeVisible();
});
