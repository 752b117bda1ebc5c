import { gzipSync } from 'node:zlib';

import { createJob, expect, faults, open, reaches, test } from './support';

/** A job with an in-place restart and a resubmission: it fills every page. */
let job = '';

test.beforeAll(async ({ request }) => {
  const { job_id } = await createJob(request, {
    name: 'both-ways',
    env: { FAIL_AT: '15,35', FAIL_KIND: 'app_error,hw_node' },
  });
  await reaches(request, job_id, 'succeeded');
  job = job_id;
});

/** Every page by its name. */
function pages(): [string, string][] {
  const tabs = ['', '/fault-tolerance', '/fault-tolerance?view=table', '/logs', '/events', '/metrics', '/spec'];
  return [
    ['jobs', '/jobs'],
    ['jobs that match nothing', '/jobs?q=nothing-has-this-name'],
    ['create', '/jobs/new'],
    ['create, Full mode', '/jobs/new?from=demo'],
    ['create, from a manifest', '/jobs/new?from=manifest'],
    ['nodes', '/nodes'],
    ['a node', '/nodes/node-1'],
    ['diagnoses', '/diagnose'],
    ['settings', '/settings'],
    ['login', '/login'],
    ...tabs.map((tab): [string, string] => [`job${tab}`, `/jobs/${job}${tab}`]),
  ];
}

for (const theme of ['light', 'dark']) {
  test(`every page is accessible and fits at 1366 and 320 px: ${theme}`, async ({ page, context, baseURL }) => {
    test.slow(); // 30 views, each judged by every rule
    await context.addCookies([{ name: 'holdfast_theme', value: theme, url: baseURL as string }]);
    const wrong: string[] = [];
    for (const [name, address] of pages()) {
      await open(page, address);
      await expect(page.locator('html')).toHaveAttribute('data-theme', theme);
      await expect(page.getByRole('heading', { level: 1 })).toHaveCount(1);
      for (const width of [1366, 320]) {
        await page.setViewportSize({ width, height: 900 });
        wrong.push(...(await faults(page)).map((fault) => `${name}, ${width} px: ${fault}`));
      }
    }
    expect(wrong).toEqual([]);
  });
}

test('HTML, CSS and the number of elements stay below their caps', async ({ page, request }) => {
  for (const [name, address] of pages()) {
    const html = await (await request.get(address)).text();
    const css = /href="(\/pkg\/[^"]+\.css)"/.exec(html)?.[1];
    expect(css, `${name} names its style sheet`).toBeTruthy();
    const style = await (await request.get(css as string)).text();
    const weight = gzipSync(html).length + gzipSync(style).length;
    expect(weight, `${name}: HTML and CSS, gzipped`).toBeLessThan(90_000);
    await page.goto(address);
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    expect(elements, `${name}: elements`).toBeLessThan(3_000);
  }
});
