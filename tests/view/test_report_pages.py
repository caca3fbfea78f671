"""The report in a real browser: it opens without an error, fits a phone, and shows hostile text as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillopt.record.directory import RunDirectory
from skillopt.view.html import write_report
from skillopt.view.text import printable
from support import train_sim
from support.browser import chromium, open_page
from support.hostile_text import ALL, report_with

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    chromium()
    result = train_sim(
        tmp_path_factory.mktemp("pages"),
        "train.num_epochs=2",
        "train.batch_size=6",
        "env.options={rules: 5, train: 12, val: 8, test: 6}",
    )
    write_report(RunDirectory(result.path))
    return RunDirectory(result.path)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_report_opens_without_an_error_and_fits(trained: RunDirectory, width: int, scheme: str) -> None:
    with open_page(trained.report.as_uri(), width=width, scheme=scheme) as page:
        assert page.locator("section").count() == 10
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.locator(".plot:visible").count() == 2  # progress, and score against cost
        assert page.locator(".heat td.h4:visible").count() > 0
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
        assert page.locator("#changes .diff .added").first.is_visible()
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(14, 19, 27)") == (scheme == "dark")


def test_no_score_with_its_interval_is_broken_over_two_lines(tmp_path: Path) -> None:
    chromium()
    noisy = ("models.target_model=sim:world?noise=0.1", "train.num_epochs=2", "train.batch_size=6")
    run = RunDirectory(train_sim(tmp_path, *noisy, "env.options={rules: 5, train: 12, val: 8, test: 6}").path)
    write_report(run)
    lines = """[...document.querySelectorAll('.measured td')].map(cell => {
        const range = document.createRange(); range.selectNodeContents(cell)
        return [cell.textContent, range.getClientRects().length] })"""
    with open_page(run.report.as_uri(), width=1280) as page:
        found = [(text, count) for text, count in page.evaluate(lines) if "[" in text]
    assert len(found) >= 4
    assert [text for text, count in found if count > 1] == []


def test_hostile_text_stands_there_as_text_and_the_page_can_be_printed(trained: RunDirectory, tmp_path: Path) -> None:
    report_with(trained, tmp_path / "run", ALL)
    with open_page((tmp_path / "run" / "report.html").as_uri()) as page:
        assert page.locator("script, img, iframe").count() == 0
        seen = page.evaluate("document.body.textContent")
        assert printable(ALL) in seen
        assert "<script>alert(1)</script>" in seen
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.heat')).overflow") == "visible"
