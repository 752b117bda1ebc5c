import { defineConfig, devices } from '@playwright/test';

// run.sh starts the server and says where it is; a server that runs already can be named by hand.
const baseURL = process.env.BASE_URL ?? 'http://127.0.0.1:3000';

export default defineConfig({
  testDir: './tests',
  outputDir: './test-results',
  // Only of a server of our own: a server that runs already keeps its jobs.
  globalTeardown: process.env.E2E_SERVER_PID ? './teardown.ts' : undefined,
  // One server with real processes on few cores: tests side by side would measure each other.
  workers: 1,
  fullyParallel: false,
  // A test that passes only sometimes is a fault to find, not to hide.
  retries: 0,
  forbidOnly: !!process.env.CI,
  timeout: 90_000,
  expect: { timeout: 15_000 },
  reporter: [['list']],
  use: {
    ...devices['Desktop Chrome'],
    baseURL,
    timezoneId: 'UTC',
    locale: 'en-GB',
    trace: 'retain-on-failure',
    screenshot: 'only-on-failure',
    launchOptions: {
      // Unset: the browser that `playwright install` fetched.
      executablePath: process.env.CHROMIUM || undefined,
      args: ['--disable-dev-shm-usage'],
    },
  },
  projects: [
    { name: 'script', testIgnore: /\.noscript\.spec\.ts$/ },
    { name: 'noscript', testMatch: /\.noscript\.spec\.ts$/, use: { javaScriptEnabled: false } },
  ],
});
