import { execFileSync } from 'node:child_process';

import type { Page } from '@playwright/test';

import { expect, field, idOf, open, test as base } from '../tests/support';

export { expect };

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run end2end/cluster/browser`);
  return value;
}

/** A folder that pods on both nodes see, for checkpoints. */
export const SHARED = setting('E2E_SHARED');
/** The example programs, which they see too. */
export const EXAMPLES = setting('E2E_EXAMPLES');
/** What has the machine's Python. */
export const IMAGE = 'localhost/train:1';

/** Signs in first: beyond loopback everybody has to. */
export const test = base.extend<{ signedIn: void }>({
  signedIn: [
    async ({ page }, use) => {
      await open(page, '/jobs');
      await expect(page).toHaveURL(/\/login/);
      await field(page, 'User name').fill('tester');
      await page.getByLabel('Password').fill(setting('E2E_PASSWORD'));
      await page.getByRole('button', { name: 'Sign in' }).click();
      await expect(page).toHaveURL(/\/jobs$/);
      await use();
    },
    { auto: true },
  ],
});

/** What `kubectl` answers about the namespace of the jobs. */
export function kubectl(...args: string[]): string {
  return execFileSync('kubectl', ['-n', setting('E2E_NAMESPACE'), ...args], { encoding: 'utf8' }).trim();
}

/** A pod as far as the tests look at it. */
export interface Pod {
  name: string;
  uid: string;
  node: string;
}

/** The pods of a job. */
export function podsOf(job: string): Pod[] {
  const { items } = JSON.parse(kubectl('get', 'pods', '-l', `holdfast.dev/job=${job}`, '-o', 'json')) as {
    items: { metadata: { name: string; uid: string }; spec: { nodeName: string } }[];
  };
  return items.map(({ metadata, spec }) => ({ name: metadata.name, uid: metadata.uid, node: spec.nodeName }));
}

/** Waits until nothing of a job is on the cluster; its id is in the name of all that was made for it. */
export async function leavesNothing(job: string): Promise<void> {
  const kinds = 'pytorchjobs,pods,services,secrets,configmaps';
  const left = () => kubectl('get', kinds, '-o', 'name').split('\n').filter((name) => name.includes(job));
  await expect.poll(left, { message: `nothing of ${job} is left on the cluster`, intervals: [250] }).toEqual([]);
}

/** Fills in the create form: texts by their label. */
export async function fill(page: Page, fields: Record<string, string>): Promise<void> {
  for (const [label, text] of Object.entries(fields)) await field(page, label).fill(text);
}

/** Sends the create form and waits for the job's page. */
export async function create(page: Page, name: string): Promise<string> {
  await page.getByRole('button', { name: 'Create job' }).click();
  await expect(page.getByRole('heading', { level: 1, name })).toBeVisible();
  return idOf(page);
}

/** Stops a job from its page. */
export async function stop(page: Page): Promise<void> {
  await page.getByText('Stop…', { exact: true }).click();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.getByRole('main').getByText('Stopped', { exact: true }).first()).toBeVisible();
}
