import { readFileSync } from 'node:fs';

import { create, EXAMPLES, expect, fill, IMAGE, kubectl, leavesNothing, type Pod, podsOf, SHARED, stop, test } from './support';
import { faults, open } from '../tests/support';

/** A program of one replica that trains until it is stopped. */
const LONG = {
  Image: IMAGE,
  Command: 'python3 /examples/train.py --steps 100000 --step-seconds 0.05',
  'GPUs in each replica': '0',
  Volumes: `/examples = host_path${EXAMPLES} ro`,
};

test('a killed rank is restarted in its own pod, and the page proves that training went on', async ({ page }) => {
  await open(page, '/jobs/new');
  await fill(page, {
    Name: 'pretrain',
    Image: IMAGE,
    Command: 'python3 /examples/ddp.py --steps 250 --step-seconds 0.1',
    Replicas: '3',
    'GPUs in each replica': '0',
    // A node has two, so the three are on both.
    CPU: '1',
    'Checkpoint directory': '/checkpoints/pretrain',
    Volumes: `/examples = host_path${EXAMPLES} ro\n/checkpoints = host_path${SHARED}`,
  });
  await page.getByRole('radio', { name: 'PyTorchJob', exact: true }).check();
  await page.getByRole('radio', { name: /^Advanced mode/ }).check();
  const job = await create(page, 'pretrain');

  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  // By then a checkpoint is there.
  await expect(page.getByText(/^step ([2-9]\d|\d{3})$/).first()).toBeVisible();
  const pods = podsOf(job);
  expect(new Set(pods.map((pod) => pod.node)).size, 'nodes').toBe(2);
  const killed = pods.find((pod) => pod.name.endsWith('worker-1')) as Pod;
  kubectl('exec', killed.name, '-c', 'pytorch', '--', 'pkill', '-KILL', '-x', 'python3');

  const incidents = page.getByRole('region', { name: 'Incidents' });
  await expect(incidents).toContainText('SIGKILL (exit 137) on rank 2');
  await expect(incidents.getByRole('link', { name: killed.node })).toBeVisible();
  await expect(incidents).toContainText('Rule oom-host-in-place, v3. Restarted in place; this creates no new task.');
  await expect(incidents).toContainText('In-place restarts 0 → 1 of 3; task restarts not charged');
  const check = page.getByRole('row', { name: /^Attempt 1, launch 1/ });
  await expect(check.getByText('Resumed')).toBeVisible();
  expect(podsOf(job), 'the same pods').toEqual(pods);

  await expect(page.getByRole('main').getByText('Succeeded', { exact: true }).first()).toBeVisible();
  await leavesNothing(job);
  await page.getByRole('link', { name: 'Logs', exact: true }).click();
  await expect(page.getByRole('log').getByRole('listitem').last()).toContainText('done');

  // What is there on Kubernetes alone; end2end/tests/ judges the rest.
  const wrong: string[] = [];
  for (const address of ['/jobs/new', '/nodes', `/jobs/${job}/fault-tolerance`, `/jobs/${job}/spec`]) {
    await open(page, address);
    for (const [width, theme] of [[1366, 'light'], [320, 'dark']] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.evaluate((theme) => document.documentElement.setAttribute('data-theme', theme), theme);
      wrong.push(...(await faults(page)).map((fault) => `${address}, ${width} px, ${theme}: ${fault}`));
    }
  }
  expect(wrong).toEqual([]);
});

test('a pasted manifest runs as it is, its failure is explained, and it can be taken along', async ({ page }) => {
  await open(page, '/jobs/new?from=manifest');
  await fill(page, { Manifest: manifest(IMAGE), 'Checkpoint directory': '/checkpoints/pasted' });
  await page.getByRole('radio', { name: /^Advanced mode/ }).check();
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  const read = page.getByRole('table', { name: 'Read from the manifest' });
  await expect(read.getByRole('row', { name: /^Replicas/ })).toContainText('2');
  await expect(page.getByText('spec.runPolicy.ttlSecondsAfterFinished')).toBeVisible();
  const job = await create(page, 'as-it-was');
  await expect(page.getByRole('main').getByText('Succeeded', { exact: true }).first()).toBeVisible();
  await leavesNothing(job);
  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  await expect(page.getByRole('row', { name: /^Attempt 1, launch 1/ }).getByText('Resumed')).toBeVisible();
  // The pods are gone; what they printed is here.
  await page.getByRole('link', { name: 'Open in Logs' }).first().click();
  const line = page.locator(`[id="${new URL(page.url()).hash.slice(1)}"]`);
  await expect(line).toContainText('ValueError: batch 15: expected 8 features');

  await page.getByRole('link', { name: 'Spec', exact: true }).click();
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download the manifest' }).click();
  const taken = readFileSync(await (await download).path(), 'utf8');
  expect(taken).toContain('kind: "PyTorchJob"');
  expect(taken).toContain('team: "speech"');
  expect(taken).toContain('holdfast-install');
});

test('a job that is stopped from its page leaves nothing on the cluster', async ({ page }) => {
  await open(page, '/jobs/new');
  await fill(page, { ...LONG, Name: 'to-stop', Replicas: '2' });
  const job = await create(page, 'to-stop');
  await expect(page.getByText(/^step \d/).first()).toBeVisible();
  expect(podsOf(job)).toHaveLength(2);
  await stop(page);
  await leavesNothing(job);
});

test('an image that does not exist ends the job with the words of the kubelet', async ({ page }) => {
  await open(page, '/jobs/new?from=manifest');
  // One that may be pulled is tried for three minutes.
  await fill(page, { Name: 'no-image', Manifest: manifest('localhost/there-is-no-such-image:1') });
  const job = await create(page, 'no-image');
  await expect(page.getByRole('main').getByText('Failed', { exact: true }).first()).toBeVisible();
  await page.getByRole('link', { name: 'Fault Tolerance Detail' }).click();
  const incident = page.getByRole('region', { name: 'Incidents' });
  await expect(incident.getByText(/ErrImageNeverPull: .*localhost\/there-is-no-such-image:1/).first()).toBeVisible();
  await leavesNothing(job);
});

test('a job that does not fit waits with the words of the scheduler', async ({ page }) => {
  await open(page, '/jobs/new');
  await fill(page, { ...LONG, Name: 'too-big', CPU: '64' });
  const job = await create(page, 'too-big');
  const words = /0\/2 nodes are available: 2 Insufficient cpu/;
  await expect(page.getByText(words).first()).toBeVisible();
  await expect(page.getByText('Cannot be scheduled').first()).toBeVisible();
  await stop(page);
  await leavesNothing(job);
});

/** As it is found: retries left to the operator, a label of its owner, another command in the master than in the worker. */
function manifest(image: string): string {
  return `apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: as-it-was
  labels: {team: speech}
spec:
  runPolicy: {backoffLimit: 3, cleanPodPolicy: All, ttlSecondsAfterFinished: 5}
  pytorchReplicaSpecs:
    Master: ${replica(image, 'echo the master; exec python3 /examples/train.py --steps 40')}
    Worker: ${replica(image, 'exec python3 /examples/train.py --steps 40')}
`;
}

function replica(image: string, command: string): string {
  const container = {
    name: 'pytorch',
    image,
    imagePullPolicy: 'Never',
    command: ['sh', '-c', command],
    env: [{ name: 'FAIL_AT', value: '15' }],
    volumeMounts: [
      { name: 'examples', mountPath: '/examples', readOnly: true },
      { name: 'checkpoints', mountPath: '/checkpoints' },
    ],
  };
  const volumes = [
    { name: 'examples', hostPath: { path: EXAMPLES } },
    { name: 'checkpoints', hostPath: { path: SHARED } },
  ];
  return JSON.stringify({ replicas: 1, restartPolicy: 'OnFailure', template: { spec: { containers: [container], volumes } } });
}
