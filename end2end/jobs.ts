const LIMIT_MS = 60_000;

/** Deletes every job and waits until none is left. */
export async function deleteAllJobs(server: string): Promise<void> {
  const api = `${server}/api/v1/jobs`;
  const asked = new Set<string>();
  const deadline = Date.now() + LIMIT_MS;
  while (Date.now() < deadline) {
    const answer = await fetch(api);
    if (!answer.ok) throw new Error(`GET ${api}: ${answer.status} ${await answer.text()}`);
    const { items } = (await answer.json()) as { items: { job_id: string }[] };
    if (items.length === 0) return;
    for (const { job_id } of items) {
      if (asked.has(job_id)) continue;
      asked.add(job_id);
      const deleted = await fetch(`${api}/${job_id}?force=true`, { method: 'DELETE' });
      if (!deleted.ok && deleted.status !== 404) {
        throw new Error(`DELETE ${job_id}: ${deleted.status} ${await deleted.text()}`);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`jobs are still there ${LIMIT_MS / 1000} s after they were deleted: ${[...asked].join(', ')}`);
}
