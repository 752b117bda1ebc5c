import AxeBuilder from '@axe-core/playwright';
import { test as base, expect, type APIRequestContext, type Locator, type Page } from '@playwright/test';

export { expect };

/** A job as `GET /api/v1/jobs/{id}` shows it, as far as the tests look at it. */
export interface Job {
  job_id: string;
  state: string;
  latest_task_id: string;
}

/** Fails a test whose page complains: an error on the console, an exception, a file that is not there. */
export const test = base.extend<{ complaints: string[] }>({
  complaints: [
    async ({ page }, use) => {
      const complaints: string[] = [];
      page.on('console', (message) => {
        // A refused form is an answer with status 422, which Chromium reports as an error to load.
        const refused = /status of 4(22|04)/.test(message.text()) && message.location().url === page.url();
        if (message.type() === 'error' && !refused) complaints.push(`console: ${message.text()} (${message.location().url})`);
      });
      page.on('pageerror', (error) => complaints.push(`exception: ${error.message}`));
      page.on('response', (response) => {
        const file = response.request().resourceType() !== 'document';
        if (file && response.status() >= 400) complaints.push(`${response.status()} ${response.url()}`);
      });
      await use(complaints);
      expect(complaints, 'the page complains').toEqual([]);
    },
    { auto: true },
  ],
});

let created = 0;

/** A directory that no other job of this run uses: the example program counts its failures there. */
export function freshDirectory(): string {
  created += 1;
  return `checkpoints/e2e-${process.pid}-${created}`;
}

/** The body of a small training in Advanced mode; `changes` replaces whole fields. */
export function body(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    name: 'trial',
    cluster: 'local',
    command: ['python3', 'examples/train.py', '--steps', '60', '--step-seconds', '0.02'],
    env: { FAIL_AT: '30' },
    replicas: 2,
    accelerators_per_replica: 1,
    checkpoint_dir: freshDirectory(),
    fault_tolerance: { auto_failover: true, max_task_restarts: 2, policy: { enabled: true } },
    ...changes,
  };
}

/** Creates a job by the API. */
export async function createJob(request: APIRequestContext, changes: Record<string, unknown> = {}): Promise<Job> {
  const answer = await request.post('/api/v1/jobs', { data: body(changes) });
  expect(answer.status(), await answer.text()).toBe(201);
  return (await answer.json()) as Job;
}

/** Waits until a job is in one of `states`. */
export async function reaches(request: APIRequestContext, id: string, ...states: string[]): Promise<Job> {
  let job: Job | undefined;
  await expect
    .poll(
      async () => {
        job = (await (await request.get(`/api/v1/jobs/${id}`)).json()) as Job;
        return job.state;
      },
      { timeout: 60_000, intervals: [100, 250], message: `${id} becomes ${states.join(' or ')}` },
    )
    .toMatch(new RegExp(`^(${states.join('|')})$`));
  return job as Job;
}

/** The id in the address of a job's page. */
export function idOf(page: Page): string {
  const id = /\/jobs\/([^/?#]+)/.exec(page.url())?.[1];
  if (!id || id === 'new') throw new Error(`no job's page: ${page.url()}`);
  return id;
}

/** Opens a page and waits until its scripts have taken over. */
export async function open(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await interactive(page);
}

/** Waits until the scripts have taken over. */
export async function interactive(page: Page): Promise<void> {
  await expect(page.locator('html')).toHaveAttribute('data-interactive', '');
}

/** A field of the create form by its label. */
export function field(page: Page, label: string): Locator {
  return page.getByRole('textbox', { name: label, exact: true });
}

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

/** What is wrong with a page as it is shown now. */
export async function faults(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).withTags(RULES).analyze();
  const wrong = violations.map(({ id, nodes }) => `${id} at ${nodes.map((node) => node.target).join(' and ')}`);
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (beyond > 0) wrong.push(`scrolls ${beyond} px sideways`);
  return wrong;
}
