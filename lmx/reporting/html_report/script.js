'use strict';
(() => {
  const charts = JSON.parse(document.getElementById('data').textContent);

  function make(parent, name, text = '', tag = 'div') {
    const element = Object.assign(document.createElement(tag), {className: name, textContent: text});
    parent.append(element);
    return element;
  }

  const nearest = (steps, step) =>
    steps.reduce((best, one, i) => Math.abs(one - step) < Math.abs(steps[best] - step) ? i : best, 0);

  function connect(figure, plot, chart) {
    const cursor = make(plot, 'cursor'), tip = make(plot, 'tip');
    const values = chart.series.map(one => new Map(one.points));
    const dots = chart.series.map(one => {
      const dot = make(plot, 'dot');
      dot.style.setProperty('--c', `var(--c${one.colour})`);
      return dot;
    });
    const steps = [...new Set(values.flatMap(one => [...one.keys()]))].sort((a, b) => a - b);
    if (!steps.length) return;
    const left = step => 100 * (step - chart.x[0]) / (chart.x[1] - chart.x[0]);
    const top = value => 100 * (chart.y[1] - value) / (chart.y[1] - chart.y[0]);
    let at = steps.length - 1;

    function show(index) {
      at = Math.max(0, Math.min(steps.length - 1, index));
      const step = steps[at], x = left(step);
      cursor.style.display = tip.style.display = 'block';
      cursor.style.left = `${x}%`;
      tip.replaceChildren();
      make(tip, 'step', `step ${step.toLocaleString('en')}`);
      chart.series.forEach((one, i) => {
        const value = values[i].get(step);
        const seen = value !== undefined && value !== null && value <= chart.y[1] && value >= chart.y[0];
        dots[i].style.display = seen ? 'block' : 'none';
        if (value === undefined) return;
        if (seen) { dots[i].style.left = `${x}%`; dots[i].style.top = `${top(value)}%`; }
        const row = make(tip, 'row');
        make(row, 'name', one.name, 'i').style.setProperty('--c', `var(--c${one.colour})`);
        row.append(value === null ? 'not finite' : String(Number(value.toPrecision(6))));
      });
      tip.style.left = x < 50 ? `calc(${x}% + 10px)` : 'auto';
      tip.style.right = x < 50 ? 'auto' : `calc(${100 - x}% + 10px)`;
    }

    function hide() {
      for (const element of [cursor, tip, ...dots]) element.style.display = 'none';
    }

    plot.addEventListener('pointermove', event => {
      const box = plot.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      show(nearest(steps, chart.x[0] + share * (chart.x[1] - chart.x[0])));
    });
    plot.addEventListener('pointerleave', hide);
    figure.addEventListener('blur', hide);
    figure.addEventListener('keydown', event => {
      const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!move) return;
      event.preventDefault();
      show(at + move);
    });
  }

  document.querySelectorAll('.plot').forEach(plot => {
    const figure = plot.closest('figure');
    connect(figure, plot, charts[figure.dataset.chart]);
  });

  document.querySelectorAll('.heads').forEach(block => {
    const weights = Uint8Array.from(atob(block.dataset.weights), letter => letter.charCodeAt(0));
    const [layer, head] = block.querySelectorAll('select');
    const heads = head.options.length - 1, cells = [...block.querySelectorAll('td')];
    const keys = [...block.querySelectorAll('thead th[scope]')].map(cell => cell.title);
    const queries = [...block.querySelectorAll('tbody th')].map(cell => cell.textContent);

    function shade() {
      const chosen = Number(head.value) < 0 ? [...Array(heads).keys()] : [Number(head.value)];
      const values = cells.map((_, i) => chosen.reduce((sum, h) =>
        sum + weights[(Number(layer.value) * heads + h) * cells.length + i] / 255, 0) / chosen.length);
      const largest = Math.max(...values, 1e-9);
      cells.forEach((cell, i) => {
        const share = Math.sqrt(values[i] / largest);
        const query = queries[Math.floor(i / keys.length)], key = keys[i % keys.length];
        cell.style.setProperty('--s', share.toFixed(3));
        cell.classList.toggle('deep', share > 0.55);
        cell.title = `${query} → ${key}: ${values[i].toFixed(2)}`;
      });
    }

    for (const select of [layer, head]) select.addEventListener('change', shade);
    block.querySelector('.choices').hidden = false;
  });

  const mistakes = document.querySelector('.mistakes');
  if (mistakes) {
    const section = mistakes.closest('section'), which = section.querySelector('.which'), every = which.textContent;
    const rows = [...mistakes.querySelectorAll('tbody tr')], all = section.querySelector('button.all');

    function choose(cell, text) {
      rows.forEach(row => { row.hidden = cell !== null && row.dataset.cell !== cell; });
      which.textContent = text;
      all.hidden = cell === null;
    }

    section.querySelectorAll('.matrix td.miss').forEach(cell => {
      if (!cell.textContent.trim()) return;
      const open = () => {
        const name = `${cell.parentNode.rowIndex - 1} ${cell.cellIndex - 1}`;
        const listed = rows.filter(row => row.dataset.cell === name).length;
        choose(name, `${cell.title}. ${listed.toLocaleString('en')} listed.`);
        section.querySelector('#mistakes').scrollIntoView({block: 'nearest'});
      };
      Object.assign(cell, {tabIndex: 0, role: 'button'});
      cell.addEventListener('click', open);
      cell.addEventListener('keydown', event => {
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); open(); }
      });
    });
    all.addEventListener('click', () => choose(null, every));
    section.querySelectorAll('.hint').forEach(hint => { hint.hidden = !section.querySelector('.matrix'); });
  }

  const options = document.querySelector('.options');
  if (options) {
    const search = options.querySelector('input[type=search]'), changed = options.querySelector('input[type=checkbox]');
    const filter = () => document.querySelectorAll('details.part').forEach(part => {
      let count = 0;
      part.querySelectorAll('tbody tr').forEach(row => {
        const text = `${row.textContent} ${row.title}`.toLowerCase();
        row.hidden = changed.checked && !row.classList.contains('changed') || !text.includes(search.value.toLowerCase());
        count += !row.hidden;
      });
      part.hidden = !count;
      if (search.value || changed.checked) part.open = count > 0;
    });
    search.addEventListener('input', filter);
    changed.addEventListener('change', filter);
    options.hidden = false;
    filter();
  }
})();
