"""The built site in a browser: it fits a phone, has no errors, fetches nothing from elsewhere, and its search finds."""

from __future__ import annotations

import functools
import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest

from lmx.models import registry
from tests import browser, pages_test

ROOT = pathlib.Path(__file__).resolve().parents[1]
REPOSITORY = 'https://github.com/someone/lmx'
WIDTHS = (1280, 390)
PAGES = {  # one of each kind
  'home': 'index.html',
  'models': 'models.html',
  'model': 'models/transformer_xl.html',
  'encoder-decoder': 'models/transformer.html',
  'command': 'commands/train.html',
  'commands': 'commands.html',
  'configuration': 'configuration/optim.html',
  'guide': 'quickstart.html',
  'weights': 'notes/weights.html',
  'results': 'results/ntm.html',
  'all results': 'results/index.html',
  'notebook': 'notebooks/xlnet_permutations.html',
  'API': 'api/models.html',
}
SEARCHES = {  # words -> pages about them, one of which is found first
  'XLNet': ('models/xlnet.html',),
  'data.manual_dir': ('configuration/data.html',),
  'lmx score': ('commands/score.html',),
  'slanted triangular': ('notebooks/ulmfit.html',),
  'Kneser-Ney': ('notes/ngrams.html', 'quickstart.html'),
}
_TOO_FAR = """
  [...document.querySelectorAll('svg.lmx-figure text')].filter(text => {
    const box = text.getBBox(), view = text.ownerSVGElement.viewBox.baseVal
    return box.x < 0 || box.x + box.width > view.width
  }).map(text => text.textContent)
"""
_ERRORS = '[...document.querySelectorAll("merror, .arithmatex")].length'


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The built site; a warning of the build is an error."""
  pytest.importorskip('mkdocs', reason='needs the extra "docs"')
  folder = tmp_path_factory.mktemp('site')
  # --quiet would hide warnings from --strict
  command = [sys.executable, '-m', 'mkdocs', 'build', '--strict', f'--site-dir={folder}']
  settings = os.environ | {'NO_MKDOCS_2_WARNING': '1', 'LMX_REPO_URL': REPOSITORY}
  done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return folder


@pytest.fixture(scope='module')
def address(site):
  """Where the site is served; from the file system it has no search."""
  handler = functools.partial(_Handler, directory=site)
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}/'
    server.shutdown()


class _Handler(http.server.SimpleHTTPRequestHandler):
  def log_message(self, *args):
    del args


@pytest.fixture(scope='module')
def page(tmp_path_factory):
  with browser.browser(tmp_path_factory.mktemp('profile')) as page:
    yield page


def test_address_of_the_repository_has_no_password():
  address = pages_test.hook('frame').address
  for remote in (
    'https://host.org/me/lmx.git',
    'https://me:secret@host.org/me/lmx',
    'git@host.org:me/lmx.git',
    'ssh://git@host.org:22/me/lmx.git',
  ):
    assert address(remote) == 'https://host.org/me/lmx', remote
  assert address('/srv/git/lmx.git') == address('') == address('../lmx') == ''


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site):
  for path in site.rglob('*.html'):
    text = path.read_text()
    assert not re.search(r'<(?:script|img|iframe|source)[^>]+src="?https?:|url\(https?:|fonts\.g', text), path
    links = re.findall(r'<link[^>]+>', text)
    assert not [link for link in links if re.search(r'stylesheet|icon|preload', link) and 'href="http' in link], path


@pytest.mark.slow
def test_every_page_has_its_frame(site):
  written = [path for path in (ROOT / 'docs').rglob('*.md') if 'results' not in path.parts]
  for path in written:
    name = path.relative_to(ROOT / 'docs').as_posix()
    text = (site / re.sub(r'(^|/)README\.md$', r'\1index.md', name)).with_suffix('.html').read_text()
    assert f'href="{REPOSITORY}/edit/main/docs/{name}"' in text, name
    assert 'rel="license"' in text and f'href="{REPOSITORY}"' in text, name
    assert 'md-footer__link--next' in text or 'md-footer__link--prev' in text, name
  text = (site / 'models/gpt2.html').read_text()
  assert f'{REPOSITORY}/edit/main/docs/models/gpt2.yml"' in text
  assert f'{REPOSITORY}/blob/main/experiments/gpt2/quickstart.py"' in text
  # Links to headings of the page, which name recipes, have a # in front.
  links = r'<a href="[^"#][^"]*" class="md-nav__link[^>]*>\s*<span class="md-ellipsis">\s*(.*?)\s*<'
  sidebar = re.findall(links, text, re.S)
  assert {'GPT-2', 'Transformer-XL', 'BERT'} < set(sidebar)
  assert not [title for title in sidebar if re.search(r'\w\.(md|py)|\w_\w', title)], sidebar


@pytest.mark.slow
@pytest.mark.parametrize('width', WIDTHS)
def test_pages_fit_and_have_no_errors(page, address, width):
  """The body does not scroll sideways, the console is empty, and no request leaves the site."""
  page.problems.clear()
  for kind, name in PAGES.items():
    page.visit(f'{address}{name}', width, site=address)
    assert page.value('document.documentElement.scrollWidth') <= width, kind
    assert page.value('document.title') and not page.problems, (kind, page.problems)


@pytest.mark.slow
def test_figures_and_equations_of_every_model_are_drawn(page, address):
  for name in registry.names():
    page.visit(f'{address}models/{name}.html', 390, site=address)
    assert page.value('document.documentElement.scrollWidth') <= 390, name
    assert page.value(_TOO_FAR) == [], name
    assert page.value('document.querySelectorAll("math").length') and not page.value(_ERRORS), name


@pytest.mark.slow
def test_search_finds(page, address):
  page.problems.clear()
  for words, expected in SEARCHES.items():
    page.visit(f'{address}index.html?q={words}'.replace(' ', '%20'), 1280, site=address)
    deadline = time.monotonic() + 60
    while not (found := page.value('document.querySelector("a.md-search-result__link")?.getAttribute("href") || ""')):
      assert time.monotonic() < deadline, f'nothing found for {words}'
      time.sleep(0.1)
    assert found.removeprefix(address).partition('?')[0].partition('#')[0] in expected, words
  assert not page.problems
