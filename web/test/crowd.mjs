// A server of the page with 1,000 disks whose names are markup, that can be stopped and started; nobody's storage behind it.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { extname, join } from 'node:path';

const KINDS = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.html': 'text/html' };
const HOSTILE = `<img src=x onerror="window.hacked=1">&lt;b&gt;'"`;

export class Crowd {
  constructor(dist, disks = 1000) {
    this.dist = dist;
    this.disks = Array.from({ length: disks }, (_, i) => ({
      id: i + 1, name: i === 0 ? HOSTILE : `disk-${String(i).padStart(4, '0')}`, tenant: i % 7 ? undefined : '<i>tenant</i>', nodes: ['n1'], pools: ['p'],
      capacity: 1e9, contract: { rate: '100/s' }, promise: { weight: 1, rate: 100, unit: 'requests', latency: 2e7, percentile: 95 },
    }));
    this.streams = new Set();
    this.seconds = 0;
  }

  static get hostile() {
    return HOSTILE;
  }

  row(disk) {
    const x = Math.abs(Math.sin(disk.id * 12.9898 + this.seconds * 78.233)) * 100;
    const rate = Math.round(x * 10 + 50) / 10;
    return [disk.id, rate, Math.round(rate * 4096), 1000 + Math.round(x * 10), 3000 + Math.round(x * 90), 9000 + Math.round(x * 100), Math.round(x) / 10, disk.id % 9, disk.id % 7, Number(x > 97), 800, 900, 1];
  }

  // A server whose clock is an hour ahead of the browser's.
  at() {
    return Date.now() + 3600e3;
  }

  frame() {
    const nodes = [{ name: 'n1', up: true, age_ms: 0, ahead_ms: -86400000, uptime: 99, connections: 5, buffers: [1, 2], rate: 1, bytes: 1 }];
    const gates = [{ name: 'p', queued: 3, in_flight: 4, depth: 8, utilization: 0.5, mean_depth: 4 }];
    const pools = [{ node: 'n1', name: 'p', store: 'test', scheduler: 'sfq', unit: 'requests', capacity: 2e12, promised: 1e12, rates: [100000, 0, 0], capable: 150000, received: [0, 0], gates }];
    return { at: this.at(), nodes, pools, rows: this.disks.map((d) => this.row(d)) };
  }

  snapshot() {
    return {
      ...this.frame(), about: { kind: 'manager', name: 'crowd', version: '0' }, viewer: { name: 'test', may_change: true, may_create: true, may_compare: false },
      reasons: ['', 'own limit', 'own share', 'device busy', 'depth', 'foreign service', 'turn'], disks: this.disks,
    };
  }

  answer(request, response) {
    const url = new URL(request.url, 'http://x');
    const json = (body) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (url.pathname === '/api/v1/stream') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`event: snapshot\ndata: ${JSON.stringify(this.snapshot())}\n\n`);
      this.streams.add(response);
      response.on('close', () => this.streams.delete(response));
    } else if (url.pathname === '/api/v1/live/sparks') {
      const ids = url.searchParams.get('ids').split(',');
      json(Object.fromEntries(ids.map((id) => [id, Array.from({ length: 60 }, (_, i) => 80 + 20 * Math.sin(i / 5 + Number(id)))])));
    } else if (url.pathname === '/api/v1/live/events') {
      json([{ seq: 1, at: this.at(), kind: 'violated', name: HOSTILE, detail: HOSTILE }]);
    } else if (url.pathname.startsWith('/api/v1/live/disks/')) {
      // As long a history as any disk has.
      const n = url.searchParams.get('after') > 0 ? 1 : 600;
      const history = Array.from({ length: n }, (_, i) => ({ t: this.at() - (n - i) * 1000, rate: 90 + Math.random() * 20, bytes: 4e5, p50: 1000, p95: 3000 + Math.random() * 1000, p99: 9000, wait: 800, service: 900, pending: 3, reason: 2, promised: 100 }));
      json({ history, heat: history.map(() => Array.from({ length: 21 }, (_, i) => (i > 4 && i < 9 ? 20 : 0))), edges_ns: Array.from({ length: 21 }, (_, i) => 2 ** (15 + i)) });
    } else if (url.pathname.startsWith('/api/')) {
      json({});
    } else {
      const file = url.pathname === '/' ? 'index.html' : url.pathname.slice(1);
      response.writeHead(200, { 'content-type': KINDS[extname(file)] ?? 'text/plain' }).end(readFileSync(join(this.dist, file)));
    }
  }

  async start(port = 0) {
    this.server = createServer((request, response) => this.answer(request, response));
    await new Promise((done) => this.server.listen(port, '127.0.0.1', done));
    this.port = this.server.address().port;
    this.timer = setInterval(() => {
      this.seconds += 1;
      const tick = `event: tick\ndata: ${JSON.stringify(this.frame())}\n\n`;
      this.streams.forEach((stream) => stream.write(tick));
    }, 1000);
    return `http://127.0.0.1:${this.port}`;
  }

  async stop() {
    clearInterval(this.timer);
    this.streams.forEach((stream) => stream.destroy());
    this.server.closeAllConnections?.();
    await new Promise((done) => this.server.close(done));
  }
}
