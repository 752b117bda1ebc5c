import { createJob, expect, open, reaches, test } from './support';

test('a failing node is blamed, and the next attempt keeps off it', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'bad-node',
    env: { FAIL_AT: '30', FAIL_KIND: 'HW_NODE', FAIL_RANK: '1' },
  });
  await open(page, `/jobs/${job_id}/fault-tolerance`);

  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText('Resubmitted automatically')).toBeVisible({ timeout: 60_000 });
  await expect(chain.getByRole('heading', { name: 'Attempt 2' })).toBeVisible();
  await expect(chain.getByText(/1 of 2 used, 1 left/)).toBeVisible();
  const { attempts } = await (await request.get(`/api/v1/jobs/${job_id}/chain`)).json();
  const [node] = attempts[0].incidents[0].decision.avoid as string[];
  const avoided = chain.getByText(/; avoids/).getByRole('link', { name: node, exact: true });
  const resumed = page.getByRole('row', { name: /Attempt 2, launch 0/ });
  await expect(resumed.getByText('Resumed')).toBeVisible({ timeout: 60_000 });
  await reaches(request, job_id, 'succeeded');
  await expect(page.getByRole('main').getByText('Succeeded').first()).toBeVisible();

  await avoided.click();
  await expect(page).toHaveURL(new RegExp(`/nodes/${node}$`));
  await expect(page.getByText(/^\d+ of 50$/)).toBeVisible();
  await page.getByRole('link', { name: 'incident of bad-node' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'bad-node' })).toBeVisible();
});

test('GPU memory that runs out fails fast, and the reason stands everywhere', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'too-big', env: { FAIL_AT: '30', FAIL_KIND: 'OOM_GPU' } });
  await open(page, `/jobs/${job_id}`);
  const reason = /another try would fail the same way/;
  await expect(page.getByText(reason).first()).toBeVisible({ timeout: 60_000 });
  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  await expect(page.getByText(/^Failed fast: rule/)).toBeVisible();
  await expect(page.getByText(reason).first()).toBeVisible();
  await expect(page.getByRole('region', { name: 'Incidents' }).getByText(/^OOM_GPU/).first()).toBeVisible();

  await page.goto('/jobs?view=attention');
  await expect(page.getByRole('row', { name: /too-big/ }).getByText('Failed')).toBeVisible();
});

test('in Basic mode the budget ends the chain', async ({ page, request }) => {
  const { job_id } = await createJob(request, {
    name: 'over-and-over',
    env: { FAIL_AT: '12', FAIL_TIMES: '10' },
    fault_tolerance: { auto_failover: true, max_task_restarts: 1 },
  });
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  await reaches(request, job_id, 'failed');
  const chain = page.getByRole('region', { name: 'Retry chain' });
  await expect(chain.getByText('No task restart left')).toBeVisible();
  await expect(chain.getByText('The 1 task restart is used.')).toBeVisible();
  await expect(page.getByRole('definition').filter({ hasText: '2 tasks' }).first()).toBeVisible();
  await expect(page.getByText(/Launch 1/)).toHaveCount(0);
});

test('the log shows the evidence in its place and is searched as a whole', async ({ page, request }) => {
  const { job_id } = await createJob(request, { name: 'noisy', env: { FAIL_AT: '30', FAIL_KIND: 'OOM_GPU' } });
  await reaches(request, job_id, 'failed');
  await open(page, `/jobs/${job_id}/fault-tolerance`);
  await page.getByRole('link', { name: 'Open in Logs' }).first().click();

  const line = page.locator(`[id="${new URL(page.url()).hash.slice(1)}"]`);
  await expect(line).toContainText('CUDA out of memory');
  await expect(line).toBeInViewport();
  await expect(page.getByRole('img', { name: /^Where in the log: evidence at line/ })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Later lines' })).toHaveCount(0);

  await page.getByRole('searchbox', { name: 'Search the whole log' }).fill('checkpoint step=10');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page).toHaveURL(/q=checkpoint/);
  await expect(page.getByRole('log').getByText(/checkpoint step=10/)).toHaveCount(1);
  await expect(page.getByText('1 line that match')).toBeVisible();

  await page.getByRole('link', { name: 'Events' }).click();
  await page.getByRole('combobox', { name: 'Kind' }).selectOption('Decision');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page).toHaveURL(/kind=decision/);
  const events = page.getByRole('table', { name: /^Events/ }).locator('tbody tr');
  await expect(events).toHaveCount(1);
  await expect(events).toContainText('Decision');
});

test('a launch that ended has no more to follow while its attempt goes on', async ({ request }) => {
  const { job_id, latest_task_id } = await createJob(request, {
    name: 'two-launches',
    command: ['python3', 'examples/train.py', '--steps', '20000', '--step-seconds', '0.05'],
    env: { FAIL_AT: '10' },
    replicas: 1,
  });
  const next = async (launch: number) => {
    const answer = await request.get(`/api/v1/tasks/${latest_task_id}/logs?launch=${launch}`);
    // A launch that has not begun is not found; that is no end of it.
    return answer.ok() ? ((await answer.json()) as { next: number | null }).next : undefined;
  };
  await expect
    .poll(async () => await next(1), { timeout: 60_000, message: 'launch 1 prints' })
    .toBeGreaterThan(0);
  // It prints before the server knows that it has started.
  await expect.poll(async () => await next(0), { message: 'launch 0 is over' }).toBeNull();
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);
});

test('a log that is followed can be left between two frames', async ({ page, request }) => {
  await page.addInitScript(() => {
    const draw = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (frame) => window.setTimeout(() => draw(frame), 500);
  });
  const { job_id } = await createJob(request, {
    name: 'chatty',
    command: ['python3', 'examples/train.py', '--steps', '20000', '--step-seconds', '0.05'],
    replicas: 1,
  });
  await open(page, `/jobs/${job_id}/logs`);
  await expect(page.getByRole('button', { name: 'Following' })).toBeVisible();
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Progress' })).toBeVisible();
  // Frames come in the order in which they were asked for; that nothing complains is seen at the end of every test.
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)));
  await request.delete(`/api/v1/jobs/${job_id}?force=true`);
});
