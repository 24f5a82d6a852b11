// Drives the page in a headless Chromium, against a node with load and against a crowd of 1,000 disks.
//
// HENGE_PAGE: the node's page; HENGE_GUARDED and HENGE_TOKEN: another's, which needs a token; CHROMIUM: the browser; SHOTS: where
// screenshots go. `make test-web` sets them.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { axe, check, failures, until, watch } from './check.mjs';
import { Crowd } from './crowd.mjs';
import { firstDisk } from './first.mjs';
import { managed } from './managed.mjs';

const base = process.env.HENGE_PAGE;
const shots = process.env.SHOTS ?? 'shots';
mkdirSync(shots, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const WIDE = { width: 1440, height: 900 };
const NARROW = { width: 390, height: 844 };
const open = async (options = {}) => {
  const page = await browser.newPage({ viewport: WIDE, bypassCSP: true, ...options });
  watch(page);
  return page;
};
const api = async (path) => (await fetch(base + path)).json();
const rate = async (name) => {
  const snapshot = await api('/api/v1/live/snapshot');
  const disk = snapshot.disks.find((d) => d.name === name);
  return snapshot.rows.find((row) => row[0] === disk.id)[1];
};

async function fits(page, where) {
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(`nothing is wider than the screen: ${where}`, wider <= 0, `${wider} px over`);
}

/** The page as it stands: light and dark, wide and narrow. */
async function looks(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const [size, viewport] of [['wide', WIDE], ['narrow', NARROW]]) {
      await page.setViewportSize(viewport);
      await page.waitForTimeout(300);
      await page.screenshot({ path: join(shots, `${name}-${scheme}-${size}.png`), fullPage: true });
      await axe(page, `${name}, ${scheme}, ${size}`);
      await fits(page, `${name}, ${size}`);
    }
  }
  await page.setViewportSize(WIDE);
}

async function firstLook() {
  // The least of three: whatever else this machine does only adds.
  const paints = [];
  for (let i = 0; i < 3; i += 1) {
    const cold = await open();
    await cold.goto(`${base}/`);
    await cold.waitForSelector('tr.row');
    paints.push(await until(() => cold.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)));
    await cold.close();
  }
  check('first paint on a cold cache under 1 s', Math.min(...paints) < 1000, paints.map((ms) => `${Math.round(ms)} ms`).join(', '));
  const page = await open();
  const client = await page.context().newCDPSession(page);
  await client.send('Network.enable');
  let bytes = 0;
  client.on('Network.loadingFinished', (event) => (bytes += event.encodedDataLength));
  await page.goto(`${base}/`);
  await page.waitForSelector('tr.row');
  await until(async () => bytes > 50_000);
  check('under 300 kB transferred', bytes > 10_000 && bytes < 300_000, `${Math.round(bytes / 1000)} kB`);
  check('a row for each disk', (await page.locator('tr.row').count()) === 3);
  const seen = await until(async () => /[1-9]\d*\/s/.test(await page.locator('tr.row', { hasText: 'mail' }).innerText()));
  check('its row shows what mail receives', seen === true);
  await page.getByRole('searchbox').fill('bac');
  check('finding by name', (await page.locator('tr.row').count()) === 1);
  await page.getByRole('searchbox').fill('');
  await page.getByRole('button', { name: 'Received' }).click();
  check('sorting says so to screen readers', (await page.locator('th[aria-sort="descending"]').innerText()).startsWith('Received'));
  await page.keyboard.press('Tab');
  const focused = await page.evaluate(() => document.activeElement.textContent);
  check('the keyboard reaches the next column', focused.startsWith('p95'), focused);
  await page.close();
}

async function changeAContract() {
  const page = await open();
  await page.goto(`${base}/#/disk/mail`);
  const limit = page.getByLabel('Limit', { exact: true });
  await limit.fill('sixty');
  check('nonsense would be refused', (await until(async () => (await page.locator('form.contract').innerText()).includes('would be refused'))) === true);
  check('and cannot be sent', await page.getByRole('button', { name: 'Change the contract' }).isDisabled());
  await limit.fill('60/s');
  check('a limit would be accepted', (await until(async () => (await page.locator('form.contract').innerText()).includes('would be accepted'))) === true);
  check('a preview changes nothing', (await api('/api/v1/live/snapshot')).disks.find((d) => d.name === 'mail').contract.limit === undefined);
  const before = await rate('mail');
  await page.getByRole('button', { name: 'Change the contract' }).click();
  check('it is changed', (await until(async () => (await page.locator('form.contract').innerText()).includes('Changed: limit 60/s'))) === true);
  const after = await until(async () => { const now = await rate('mail'); return now > 55 && now < 65 && now; });
  check('its effect is seen: 60/s at most', after > 55 && after < 65 && before > 65, `${before}/s before, ${after}/s after`);
  check('the page shows it', (await until(async () => /^Received\s*(5\d|6\d)(\.\d+)?\/s/m.test(await page.locator('dl.facts').innerText()))) === true);
  check('its history says so', (await until(async () => (await page.locator('table.events').innerText()).includes('limit=60/s'))) === true);
  check('it waits for its own limit', (await until(async () => (await page.locator('main').innerText()).includes('waits for: own limit'))) === true);
  await page.close();
}

async function compare() {
  const page = await open();
  await page.goto(`${base}/#/compare`);
  await page.getByLabel('Record for').fill('4');
  await page.getByRole('button', { name: 'Record and compare' }).click();
  const done = await until(async () => (await page.locator('section[aria-label^="Under"]').count()) === 2, 40);
  check('the same load under two schedulers, side by side', done === true, await page.locator('div[role=status]').last().innerText());
  check('both were simulated', (await page.locator('section p.over').count()) === 0, (await page.locator('section p.over').allInnerTexts()).join('; '));
  await page.waitForTimeout(300);
  await looks(page, 'compare');
  await page.close();
}

async function everyPage() {
  const node = (await api('/api/v1/live/snapshot')).nodes[0].name;
  const pages = { overview: '#/', disk: '#/disk/mail', node: `#/node/${node}`, events: '#/events' };
  for (const colorScheme of ['light', 'dark']) {
    for (const [size, viewport] of [['wide', WIDE], ['narrow', NARROW]]) {
      const page = await open({ colorScheme, viewport });
      for (const [name, hash] of Object.entries(pages)) {
        await page.goto(`${base}/${hash}`);
        await page.waitForSelector('main h1', { state: 'attached' });
        await page.waitForTimeout(1300);
        await page.screenshot({ path: join(shots, `${name}-${colorScheme}-${size}.png`), fullPage: true });
        await axe(page, `${name}, ${colorScheme}, ${size}`);
        await fits(page, `${name}, ${size}`);
      }
      await page.close();
    }
  }
}

async function logIn() {
  const guarded = process.env.HENGE_GUARDED;
  const page = await open({ viewport: NARROW });
  await page.goto(`${guarded}/`);
  await page.waitForSelector('#token');
  await axe(page, 'logging in');
  await page.screenshot({ path: join(shots, 'login-light-narrow.png') });
  await page.fill('#token', 'nobody-has-this-token');
  await page.getByRole('button', { name: 'Log in' }).click();
  check('a wrong token is refused', (await until(async () => (await page.locator('#token-problem').innerText()).includes('nobody has this token'))) === true);
  await page.fill('#token', process.env.HENGE_TOKEN);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.waitForSelector('tr.row');
  check('the right one lets in', (await page.locator('tr.row').count()) > 0);
  const without = await fetch(`${guarded}/metrics`);
  check('metrics need it, too', without.status === 401, `${without.status}`);
  await page.getByRole('button', { name: 'Log out' }).click();
  check('logging out shows nothing any more', (await page.waitForSelector('#token').then(() => page.locator('tr.row').count())) === 0);
  await page.close();
}

async function crowd() {
  const server = new Crowd(fileURLToPath(new URL('../dist', import.meta.url)));
  const url = await server.start();
  const page = await open();
  await page.goto(`${url}/`);
  await page.waitForSelector('tr.row');
  check('of 1,000 disks only those in sight are in the page', (await page.locator('tr.row').count()) < 60, `${await page.locator('tr.row').count()} rows`);
  const client = await page.context().newCDPSession(page);
  await client.send('Performance.enable', { timeDomain: 'threadTicks' });
  const busy = async () => (await client.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value;
  await page.waitForTimeout(2000);
  const from = await busy();
  await page.waitForTimeout(10_000);
  const share = ((await busy()) - from) / 10;
  check('at most 5 % of a core with 1,000 disks', share < 0.05, `${(share * 100).toFixed(1)} %`);
  const name = await page.locator('tr.row td.name a').filter({ hasText: '<img' }).first().innerText();
  check('markup in names is text', name === Crowd.hostile && (await page.evaluate(() => window.hacked)) === undefined, name);
  await page.locator('div.list').focus();
  await page.keyboard.press('PageDown');
  check('the keyboard moves the list', await until(async () => (await page.evaluate(() => document.querySelector('.list').scrollTop)) > 100));
  await page.evaluate(() => document.querySelector('.list').scrollTo(0, 40_000));
  check('rows far down are shown when they come in sight', (await until(async () => (await page.locator('tr.row').first().innerText()).includes('disk-08'))) === true);
  await page.goto(`${url}/#/disk/${encodeURIComponent(Crowd.hostile)}`);
  check('a disk of such a name has its page', (await until(async () => (await page.locator('h1').innerText()) === Crowd.hostile)) === true);
  await page.waitForTimeout(1500);
  await page.goto(`${url}/#/node/n1`);
  check('a clock that differs is told', (await until(async () => (await page.locator('main').innerText()).includes('its clock is 24 h behind'))) === true);
  await page.goto(`${url}/#/`);

  await server.stop();
  const banner = page.locator('.banner');
  check('a server that is gone is told', (await until(async () => (await banner.innerText()).includes('What you see is old'))) === true, await banner.innerText());
  check('the last state stays', (await page.locator('tr.row').count()) > 5);
  check('and is marked as old', await page.locator('main.is-old').count().then((n) => n === 1));
  await page.screenshot({ path: join(shots, 'gone-light-wide.png') });
  await axe(page, 'a server that is gone');
  await server.start(server.port);
  check('it recovers by itself', (await until(async () => (await banner.count()) === 0 && (await page.locator('main.is-old').count()) === 0, 20)) === true);
  check('no markup has run', (await page.evaluate(() => window.hacked)) === undefined);
  await server.stop();
  await page.close();
}

const tools = { open, looks };
const onANodeWithoutDisks = () => firstDisk(tools);
const onAManager = () => managed(tools);

// Those that are named, or all.
const named = process.argv.slice(2);
const chosen = (part) => !named.length || named.includes(part.name);
for (const part of [onANodeWithoutDisks, onAManager, firstLook, changeAContract, compare, everyPage, logIn, crowd].filter(chosen)) {
  console.log(`== ${part.name}`);
  await part().catch((error) => check(`${part.name} runs to its end`, false, error.message));
}
await browser.close();
console.log(failures() ? `${failures()} FAILED` : `all ok; screenshots in ${shots}`);
process.exit(failures() ? 1 : 0);
