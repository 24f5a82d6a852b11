// What the server tells: everything once, then what changes, by server-sent events.
//
// Rows live outside of Svelte's sight, as 1,000 of them change every second: what is on the screen reads them anew whenever
// `live.tick` grows. When the server is silent, the last state stays, marked as old, and the page tries again by itself.

export const COLUMNS = ['id', 'rate', 'bytes', 'p50', 'p95', 'p99', 'late', 'pending', 'reason', 'violated', 'wait', 'service', 'clients'];
const SPARK = 60;
/** Ticks come every second; so much later the state is old. */
const SILENCE = 5000;

export const live = $state({
  state: 'starting', // starting, live, old, login
  problem: '',
  heard: 0,
  tick: 0,
  skew: 0,
  about: { kind: '', name: '', version: '' },
  viewer: { name: '', may_change: false, may_create: false, may_compare: false },
  reasons: [],
  nodes: [],
  pools: [],
  disks: [],
  events: [],
});

export const rows = new Map();
export const sparks = new Map();
let stream = null;
let timer = 0;
let tries = 0;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Asks the server; errors say what it said. */
export async function ask(path, method = 'GET', body = undefined) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, 'the server does not answer');
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Failure(response.status, answer.error ?? `the server answered ${response.status}`);
  return answer;
}

export function start() {
  clearTimeout(timer);
  stream?.close();
  stream = new EventSource('/api/v1/stream');
  stream.addEventListener('snapshot', (event) => whole(JSON.parse(event.data)));
  stream.addEventListener('tick', (event) => tick(JSON.parse(event.data)));
  stream.addEventListener('events', (event) => {
    const known = new Set(live.events.map((e) => e.seq));
    live.events = [...live.events, ...JSON.parse(event.data).filter((e) => !known.has(e.seq))].slice(-500);
  });
  stream.addEventListener('problem', (event) => {
    live.problem = JSON.parse(event.data).error;
    live.state = live.heard ? 'old' : 'starting';
  });
  stream.onerror = lost;
}

async function lost() {
  stream?.close();
  let problem = '';
  try {
    await ask('/api/v1/live/session');
    problem = 'the connection was lost';
  } catch (failure) {
    if (failure.status === 401) {
      live.state = 'login';
      live.problem = failure.message;
      return;
    }
    problem = failure.message;
  }
  live.problem = problem;
  live.state = live.heard ? 'old' : 'starting';
  tries += 1;
  timer = setTimeout(start, Math.min(8000, 500 * 2 ** Math.min(tries, 4)));
}

function alive(at) {
  tries = 0;
  live.heard = Date.now();
  live.skew = at - Date.now();
  live.state = 'live';
  live.problem = '';
  live.tick += 1;
}

function whole(snapshot) {
  const { about, viewer, reasons, nodes, pools, disks } = snapshot;
  rows.clear();
  snapshot.rows.forEach((row) => rows.set(row[0], row));
  for (const id of sparks.keys()) if (!rows.has(id)) sparks.delete(id);
  Object.assign(live, { about, viewer, reasons, nodes, pools, disks });
  if (live.events.length === 0) loadEvents();
  alive(snapshot.at);
}

export async function loadEvents() {
  try {
    live.events = await ask('/api/v1/live/events');
  } catch {
    // They come with the next snapshot, or by the stream.
  }
}

function tick(news) {
  news.rows.forEach((row) => rows.set(row[0], row));
  if (news.nodes.length || live.nodes.length) live.nodes = news.nodes;
  if (news.pools.length || live.pools.length) live.pools = news.pools;
  for (const [id, points] of sparks) {
    const row = rows.get(id);
    const disk = byId.get(id);
    if (!row || !disk) continue;
    points.push(disk.promise.unit === 'bytes' ? row[2] : row[1]);
    if (points.length > SPARK) points.splice(0, points.length - SPARK);
  }
  alive(news.at);
}

const byId = new Map();
$effect.root(() => {
  $effect(() => {
    byId.clear();
    live.disks.forEach((disk) => byId.set(disk.id, disk));
  });
});

let wanted = new Set();
let asking = 0;
/** The last minute of these disks, asked for once and kept up by ticks. */
export function wantSparks(ids) {
  const missing = ids.filter((id) => !sparks.has(id));
  missing.forEach((id) => wanted.add(id));
  if (!wanted.size || asking) return;
  asking = setTimeout(async () => {
    const list = [...wanted].slice(0, 200);
    wanted = new Set();
    asking = 0;
    try {
      const told = await ask(`/api/v1/live/sparks?ids=${list.join(',')}`);
      list.forEach((id) => sparks.set(id, told[id] ?? []));
    } catch {
      list.forEach((id) => sparks.set(id, []));
    }
  }, 80);
}

/** The server's clock, by which everything is shown. */
export const now = () => Date.now() + live.skew;

/** Grows once a minute, for what depends on the date. */
export const clock = $state({ minute: 0 });
setInterval(() => (clock.minute += 1), 60_000);

setInterval(() => {
  if (live.state === 'live' && Date.now() - live.heard > SILENCE) {
    live.state = 'old';
    live.problem = 'the server is silent';
    stream?.close();
    lost();
  }
}, 1000);

export async function logIn(token) {
  await ask('/api/v1/live/session', 'POST', { token });
  live.state = 'starting';
  start();
}

export async function logOut() {
  await ask('/api/v1/live/session', 'DELETE');
  stream?.close();
  rows.clear();
  Object.assign(live, { nodes: [], pools: [], disks: [], events: [], heard: 0 });
  start();
}
