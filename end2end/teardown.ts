import type { FullConfig } from '@playwright/test';

import { deleteAllJobs } from './jobs';

/**
 * Local replicas outlive the server on purpose, so stopping it alone would leave them running; run.sh then checks that
 * nothing is left.
 */
export default async function teardown(config: FullConfig): Promise<void> {
  await deleteAllJobs(config.projects[0].use.baseURL as string);
}
