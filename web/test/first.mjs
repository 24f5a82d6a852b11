// A node that has a pool and no disk: what the page says first; a disk made, attached, grown and removed on it.
import { check, until } from './check.mjs';

export async function firstDisk({ open, looks }) {
  const base = process.env.HENGE_EMPTY;
  const api = async (path) => (await fetch(base + path)).json();
  const disks = async () => (await api('/api/v1/live/snapshot')).disks;
  const page = await open();
  const says = (where, text) => until(async () => (await page.locator(where).innerText()).includes(text));

  await page.goto(`${base}/`);
  check('a node without disks says what to do first', (await says('main', 'Your first disk')) === true);
  await looks(page, 'empty');
  await page.getByRole('link', { name: 'New disk' }).click();
  await page.getByLabel('Name').fill('mail');
  await page.getByLabel('Capacity').fill('100GB');
  check('too large a disk would be refused, and says what is free', (await says('form.new', 'has no room for 100')) === true, await page.locator('form.new .answer').innerText());
  check('and cannot be made', await page.getByRole('button', { name: 'Make the disk' }).isDisabled());
  await page.getByLabel('Capacity').fill('1GB');
  await page.getByLabel('Reserved rate').fill('fast');
  check('nonsense would be refused, and says how it is written', (await until(async () => /would be refused[^]*rate/.test(await page.locator('form.new .answer').innerText()))) === true, await page.locator('form.new .answer').innerText());
  await page.getByLabel('Reserved rate').fill('500/s');
  check('what fits would be accepted, with what is promised then', (await until(async () => /would be accepted[^]*500\/s after/.test(await page.locator('form.new').innerText()))) === true, await page.locator('form.new .answer').innerText());
  check('asking makes nothing', (await disks()).length === 0);
  await looks(page, 'new');
  await page.getByRole('button', { name: 'Make the disk' }).click();
  check('it is made', (await says('h1', 'Disk mail is there')) === true);
  const ways = await page.locator('main').innerText();
  check('each front end says how to attach', ['nbd-client -unix', 'iscsiadm -m node -T', 'Connect-IscsiTarget', 'nvme connect -t tcp'].every((text) => ways.includes(text)), ways.slice(0, 200));
  await looks(page, 'made');
  await page.getByRole('link', { name: 'Go to the disk' }).click();
  check('its page shows its contract', (await says('p.note', 'rate 500/s')) === true);
  check('and how to attach', (await says('main', 'nvme connect -t tcp')) === true);

  await page.getByLabel('Capacity, now').fill('500MB');
  check('it does not shrink', (await says('form.contract', 'does not shrink')) === true);
  await page.getByLabel('Capacity, now').fill('2GB');
  check('it may grow', (await says('form.contract', 'its capacity would be 2GB')) === true, await page.locator('form.contract .answer').innerText());
  await page.getByRole('button', { name: 'Change the contract' }).click();
  check('it has grown', (await until(async () => (await disks())[0]?.capacity === 2e9)) === true);

  await page.getByText('Remove this disk').click();
  check('removing asks for its name', await page.getByRole('button', { name: 'Remove disk and data' }).isDisabled());
  await page.getByLabel('Type its name').fill('mail');
  await page.getByRole('button', { name: 'Remove disk and data' }).click();
  check('it is removed, and the page begins anew', (await says('main', 'Your first disk')) === true);
  check('the node has no disk', (await until(async () => (await disks()).length === 0)) === true);
  await page.close();
}
