// Opens each page of a host in a browser: at three widths, in both themes, checked by axe, by keyboard, without JavaScript, and
// live.
//
// usage: check.js URL TOKEN FOLDER: screenshots go to FOLDER. The host has the package `guests`.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { By, Key, until } from "selenium-webdriver";

import { faultsOf, host, setScripts, setTheme, start, WAIT_MAX_MS } from "./host.js";

const WIDTHS = [360, 1024, 1920];
const THEMES = ["light", "dark"];
/** How soon after its end a scheduled launch that failed must be seen. A host looks for them every 300 ms. */
const LIVE_MAX_MS = 1_000;
/** After this, a page has read what a change of the record led it to read. */
const QUIET_MS = 5_000;

/** A text that means markup to a browser, changes the direction of text, and is a command to a terminal. */
const HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'&\u202e\u001b[2J";
const [, , base, token, folder] = process.argv;
assert(base && token && folder, "usage: check.js URL TOKEN FOLDER");
mkdirSync(folder, { recursive: true });
const { api, ended, loaded, signIn } = host(base, token);
const faults = [];

/** Check the page that is open: nothing is wider than the window, no text became markup, and axe finds nothing. */
async function check(browser, name) {
  for (const fault of await faultsOf(browser)) faults.push(`${name}: ${fault}`);
  writeFileSync(join(folder, `${name}.png`), await browser.takeScreenshot(), "base64");
}

/** Type keys as a person does. */
const type = (browser, ...keys) => browser.actions().sendKeys(...keys).perform();

async function everyPage(browser, paths) {
  for (const theme of THEMES) {
    await setTheme(browser, theme);
    for (const width of WIDTHS) {
      await browser.manage().window().setRect({ width, height: 900 });
      for (const path of paths) {
        await browser.get(new URL(path, base).href);
        const name = path.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "now";
        await check(browser, `${name}-${width}-${theme}`);
      }
    }
  }
}

/** Returns the field for the note of a pause, once what hides it is open. */
async function pauseNote(browser) {
  const path = By.xpath("//form[.//button[normalize-space()='Pause']]//input[@name='note']");
  const note = await browser.wait(until.elementLocated(path), WAIT_MAX_MS, "a form to pause");
  const closed = By.xpath("./ancestor::details[not(@open)]/summary");
  for (const summary of await note.findElements(closed)) await summary.sendKeys(Key.ENTER);
  return note;
}

/** Waits until the page says that the schedule is paused. */
const isPaused = (browser) =>
  browser.wait(until.elementLocated(By.xpath("//main//*[contains(@class, 'badge')][contains(., 'paused')]")), WAIT_MAX_MS, "it is paused");

/** Go to the schedules, search one, open it and pause it, without a pointer. */
async function byKeyboard(browser) {
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await browser.get(base);
  await type(browser, "g", "s");
  await browser.wait(until.urlContains("/schedules"), WAIT_MAX_MS, "`g s` opens the schedules");
  await type(browser, "/");
  const focused = await browser.switchTo().activeElement();
  assert.equal(await focused.getAttribute("type"), "search", "`/` leads to the search");
  await type(browser, "by-key", Key.ENTER);
  // The row was on the page before the search too, and goes with that page.
  await browser.wait(until.urlContains("by-key"), WAIT_MAX_MS, "the search is done");
  const link = await browser.wait(until.elementLocated(By.linkText("by-keyboard")), WAIT_MAX_MS);
  await link.sendKeys(Key.ENTER);
  await (await pauseNote(browser)).sendKeys("by keyboard", Key.ENTER);
  await isPaused(browser);
  const shown = await api("GET", "schedules/by-keyboard");
  assert.equal(shown.pause_note, "by keyboard");
}

/** Keep a page open while a scheduled launch fails: a chip says so with the cause and leads to the launch, and Now counts it. */
async function live(browser, path) {
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await browser.get(new URL(path, base).href);
  const name = `fails-on-${path.slice(1) || "now"}`;
  const shown = `const news = document.getElementById("news");
    return [news.hidden ? "" : news.title, document.querySelector("[aria-labelledby=failed] p")?.textContent];`;
  const [, before] = await browser.executeScript(shown);
  const at = new Date(Date.now() + QUIET_MS);
  await api("POST", "schedules", { package: "guests", task: "fail_permanent", kind: "at", expression: at.toISOString(), name });
  let news, failed;
  const isSeen = async () => {
    [news, failed] = await browser.executeScript(shown);
    return news.includes(name) && (path !== "/" || failed !== before);
  };
  await browser.wait(isSeen, WAIT_MAX_MS, `a failed launch on ${path}`, 50);
  const seen = Date.now();
  const [launch] = await api("GET", `launches?schedule=${name}`);
  const took = seen - Date.parse(launch.finished_at);
  if (took > LIVE_MAX_MS) faults.push(`a failed launch was seen on ${path} after ${took} ms`);
  console.log(`a failed launch was seen on ${path} after ${took} ms`);
  assert.match(news, /failed: .*told to fail/, `the cause on ${path}`);
  await check(browser, `failure-on-${path.slice(1) || "now"}`);
  const chip = await browser.findElement(By.id("news"));
  assert.equal(await chip.getText(), "1 new problem");
  await chip.click();
  await browser.wait(until.urlContains(`/launches/${launch.id}`), WAIT_MAX_MS, "the launch opens");
}

/** Use the pages without JavaScript: sign in, filter, preview an edit, pause, and see that it is done. */
async function withoutScripts(browser) {
  await browser.manage().deleteAllCookies();
  await setScripts(browser, false);
  await browser.manage().window().setRect({ width: 1024, height: 900 });
  await signIn(browser, "/schedules?q=plain");
  const hold = await browser.findElement(By.id("live"));
  assert.equal(await hold.isDisplayed(), false, "a button that needs a script is not shown");
  await browser.findElement(By.linkText("plain")).sendKeys(Key.ENTER);
  await browser.wait(until.urlContains("/schedules/plain"), WAIT_MAX_MS);
  await browser.findElement(By.css("main a[href$='/edit']")).sendKeys(Key.ENTER);
  const rule = await browser.wait(until.elementLocated(By.name("expression")), WAIT_MAX_MS);
  await rule.clear();
  await rule.sendKeys("15 4 * * *");
  await browser.findElement(By.css("button[value=preview]")).sendKeys(Key.ENTER);
  await browser.wait(until.elementLocated(By.id("preview-title")), WAIT_MAX_MS, "a preview");
  assert.equal((await browser.findElements(By.css("#preview ol > li"))).length, 5, "the next five slots");
  writeFileSync(join(folder, "without-scripts.png"), await browser.takeScreenshot(), "base64");
  await browser.findElement(By.css("button[value=edit]")).sendKeys(Key.ENTER);
  await browser.wait(until.elementLocated(By.css(".done")), WAIT_MAX_MS, "it is saved");
  assert.equal((await api("GET", "schedules/plain")).expression, "15 4 * * *");
  // A session that ends while a form is filled in.
  await (await pauseNote(browser)).sendKeys("typed before");
  await browser.manage().deleteAllCookies();
  await browser.findElement(By.css("button[value=pause]")).sendKeys(Key.ENTER);
  const field = await browser.wait(until.elementLocated(By.name("token")), WAIT_MAX_MS, "the login");
  await field.sendKeys(token, Key.ENTER);
  const send = By.xpath("//button[starts-with(normalize-space(), 'Send it now')]");
  await browser.wait(until.elementLocated(send), WAIT_MAX_MS, "what was typed");
  writeFileSync(join(folder, "kept-form.png"), await browser.takeScreenshot(), "base64");
  await browser.findElement(send).sendKeys(Key.ENTER);
  await isPaused(browser);
  assert.equal((await api("GET", "schedules/plain")).pause_note, "typed before");
  await setScripts(browser, true);
}

/** See the effect of an edit while it is typed. */
async function livePreview(browser) {
  await browser.get(new URL("/schedules/by-keyboard/edit", base).href);
  const zone = await browser.findElement(By.name("timezone"));
  await zone.clear();
  await zone.sendKeys("Europe/Paris");
  const shown = () => browser.findElement(By.id("preview")).getText();
  await browser.wait(async () => (await shown()).includes("Europe/Paris"), WAIT_MAX_MS, "a preview while one types");
  await zone.sendKeys("x");
  await browser.wait(async () => (await shown()).includes("Europe/Parisx"), WAIT_MAX_MS, "why it is refused");
  await check(browser, "live-preview");
}

/** Fill in texts wherever a person, a file or a guest can put them. */
async function hostileTexts() {
  await api("POST", "schedules", { ...definition, name: "hostile", task: "log_escapes", context: { text: HOSTILE } });
  const { launch } = await api("POST", "schedules/hostile/trigger", { context: { other: HOSTILE } });
  await ended(launch);
  await api("POST", "schedules/hostile/pause", { note: HOSTILE });
  await api("POST", "silences", { rule: "failed*", subjects: ["hostile"], for: "1h", note: HOSTILE });
  const row = await api("GET", `launches/${launch}`);
  return ["/schedules/hostile", "/schedules/hostile/edit", `/launches/${launch}`, `/runs/${row.run_id}`];
}

await loaded();
const definition = { package: "guests", kind: "at", expression: "2099-01-01T00:00:00Z" };
for (const [name, task] of [["broken", "fail_permanent"], ["by-keyboard", "ok"]]) {
  await api("POST", "schedules", { ...definition, name, task });
}
await api("POST", "schedules", { package: "guests", task: "ok", kind: "cron", expression: "0 4 * * *", name: "plain" });
const { launch } = await api("POST", "schedules/broken/trigger", {});
await ended(launch);
const hostile = await hostileTexts();
const browser = await start();
try {
  await browser.get(new URL("/schedules/broken?x=1", base).href);
  await check(browser, "login");
  await signIn(browser, "/schedules/broken?x=1");
  const paths = ["/", "/schedules", "/schedules/broken", "/schedules/broken/edit", "/schedules/broken/calendar", "/backfills"];
  paths.push("/launches", `/launches/${launch}`, "/plan", "/packages", "/packages/guests", "/hosts", "/events", "/alerts");
  paths.push("/new-schedule", "/new-schedule?package=guests", "/schedules/broken/run");
  paths.push("/search?q=broken", "/search?q=zzz", "/tokens", "/outbox", "/configuration", "/launches?schedule=broken");
  paths.push("/launches?status=nonsense", `/schedules?q=${encodeURIComponent(HOSTILE)}`, ...hostile);
  await everyPage(browser, paths);
  await byKeyboard(browser);
  await livePreview(browser);
  for (const path of ["/", "/packages"]) await live(browser, path);
  await withoutScripts(browser);
} finally {
  await browser.quit();
}
for (const fault of faults) console.error(fault);
assert.equal(faults.length, 0, `${faults.length} faults`);
console.log("every page is in order in a browser");
