// BullMQ: bullmq_peer.mjs URL push|work CASE JOBS. lab/peers/README.md has the settings' sources.

import cluster from "node:cluster";
import { availableParallelism } from "node:os";
import { Queue, Worker } from "bullmq";

const [url, role, name, count] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

const jobs = {
  noop: async () => {},
  compute: async () => {
    const end = process.hrtime.bigint() + 1_000_000n;
    while (process.hrtime.bigint() < end);
  },
  sleep: () => new Promise((resolve) => setTimeout(resolve, 10)),
};

if (role === "push") {
  const queue = new Queue("q", { connection });
  const opts = { removeOnComplete: true };
  for (let left = Number(count); left > 0; left -= 1000) {
    const batch = Array.from({ length: Math.min(left, 1000) }, () => ({ name, data: {}, opts }));
    await queue.addBulk(batch);
  }
  await queue.close();
} else if (cluster.isPrimary) {
  // A process has one thread, so each CPU has a process.
  for (let cpu = 0; cpu < availableParallelism(); cpu++) cluster.fork();
} else {
  // The concurrency hides the round trips.
  new Worker("q", jobs[name], { connection, concurrency: name === "sleep" ? 256 / availableParallelism() : 64 });
}
