import { defineConfig, devices } from '@playwright/test';

import base from './playwright.config';

// end2end/cluster/browser starts the server, whose jobs are pods of the test cluster.
export default defineConfig({
  ...base,
  testDir: './kubernetes',
  projects: [{ name: 'cluster' }],
  globalTeardown: undefined,
  // Mostly they wait for pods. One that trains and one beside it is what two processors bear.
  workers: 2,
  fullyParallel: true,
  // Pods start in seconds; PyTorch is loaded by every rank, twice.
  timeout: 180_000,
  expect: { timeout: 60_000 },
  use: { ...devices['Desktop Chrome'], ...base.use },
});
