// Opens each page of a host in Chromium: at three widths, in both themes, checked by axe, by keyboard, and live.
//
// usage: check.js URL TOKEN FOLDER: screenshots go to FOLDER. The host has the package `guests`.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { Browser, Builder, By, Key, until } from "selenium-webdriver";
import chrome from "selenium-webdriver/chrome.js";

const WIDTHS = [360, 1024, 1920];
const THEMES = ["light", "dark"];
/** How long anything may take. */
const WAIT_MAX_MS = 20_000;
/** How soon a launch that was triggered, and failed, must be seen. A host reads new events every 300 ms. */
const LIVE_MAX_MS = 3_000;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

const [, , base, token, folder] = process.argv;
assert(base && token && folder, "usage: check.js URL TOKEN FOLDER");
mkdirSync(folder, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const faults = [];

/** Send a request to the API. */
async function api(method, path, body) {
  const answer = await fetch(new URL(`/api/v1/${path}`, base), {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const json = await answer.json();
  assert(answer.ok, `${method} ${path}: ${JSON.stringify(json)}`);
  return json;
}

async function start() {
  const options = new chrome.Options();
  options.addArguments("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars");
  if (process.env.CHROMIUM) options.setChromeBinaryPath(process.env.CHROMIUM);
  const service = new chrome.ServiceBuilder(process.env.CHROMEDRIVER);
  const builder = new Builder().forBrowser(Browser.CHROME).setChromeOptions(options);
  return builder.setChromeService(service).build();
}

/** Check the page that is open: nothing is wider than the window, and axe finds nothing. */
async function check(browser, name) {
  const overflow = await browser.executeScript(
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
  );
  if (overflow > 0) faults.push(`${name}: ${overflow} px wider than the window`);
  // The policy of the page forbids other scripts, as it must.
  await browser.sendDevToolsCommand("Page.setBypassCSP", { enabled: true });
  await browser.executeScript(axe);
  const violations = await browser.executeAsyncScript(
    `const done = arguments[arguments.length - 1];
    axe.run(document, { runOnly: arguments[0] }).then((found) => done(found.violations.map(
      (it) => it.id + ": " + it.nodes[0].html.slice(0, 200))));`,
    RULES,
  );
  for (const violation of violations) faults.push(`${name}: ${violation}`);
  writeFileSync(join(folder, `${name}.png`), await browser.takeScreenshot(), "base64");
}

/** Type keys as a person does. */
const type = (browser, ...keys) => browser.actions().sendKeys(...keys).perform();

async function everyPage(browser, paths) {
  for (const theme of THEMES) {
    const features = [{ name: "prefers-color-scheme", value: theme }];
    await browser.sendDevToolsCommand("Emulation.setEmulatedMedia", { features });
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
  const link = await browser.wait(until.elementLocated(By.linkText("by-keyboard")), WAIT_MAX_MS);
  await link.sendKeys(Key.ENTER);
  const pause = By.xpath("//form[.//button[normalize-space()='Pause']]//input[@name='note']");
  const note = await browser.wait(until.elementLocated(pause), WAIT_MAX_MS);
  await note.sendKeys("by keyboard", Key.ENTER);
  await browser.wait(until.elementLocated(By.css(".badge.s-paused")), WAIT_MAX_MS, "it is paused");
  const shown = await api("GET", "schedules/by-keyboard");
  assert.equal(shown.pause_note, "by keyboard");
}

/** Keep a page open while a launch fails: the page shows it by itself, and no more after `u`. */
async function live(browser) {
  await browser.get(new URL("/schedules/broken", base).href);
  const rows = () => browser.findElements(By.css("main .badge.s-failed"));
  const failed = async () => {
    const { launch } = await api("POST", "schedules/broken/trigger", {});
    let row;
    do {
      row = await api("GET", `launches/${launch}`);
    } while (row.finished_at === null);
  };
  const before = (await rows()).length;
  await failed();
  const seen = Date.now();
  await browser.wait(async () => (await rows()).length > before, WAIT_MAX_MS, "a failed launch");
  const took = Date.now() - seen;
  if (took > LIVE_MAX_MS) faults.push(`a failed launch was seen after ${took} ms`);
  console.log(`a failed launch was seen after ${took} ms`);
}

const definition = { package: "guests", kind: "at", expression: "2099-01-01T00:00:00Z" };
for (const [name, task] of [["broken", "fail_permanent"], ["by-keyboard", "ok"]]) {
  await api("POST", "schedules", { ...definition, name, task });
}
const { launch } = await api("POST", "schedules/broken/trigger", {});
const browser = await start();
try {
  await browser.get(new URL("/schedules/broken?x=1", base).href);
  await check(browser, "login");
  await browser.findElement(By.name("token")).sendKeys(token, Key.ENTER);
  await browser.wait(until.elementLocated(By.css("nav")), WAIT_MAX_MS, "a session");
  const paths = ["/", "/schedules", "/schedules/broken", "/launches", `/launches/${launch}`, "/plan"];
  paths.push("/packages", "/packages/guests", "/hosts", "/events", "/alerts", "/launches?status=nonsense");
  await everyPage(browser, paths);
  await byKeyboard(browser);
  await live(browser);
} finally {
  await browser.quit();
}
for (const fault of faults) console.error(fault);
assert.equal(faults.length, 0, `${faults.length} faults`);
console.log("every page is in order in a browser");
