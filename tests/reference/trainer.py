"""Fine-tunes a folder of Hugging Face's with transformers' Trainer, at the settings of experiments/bert/tasks.py.

  python tests/reference/trainer.py --model=DIR --data=DIR [--score] [--seeds=0,1]
    [--epochs=3] [--lr=5e-5] [--batch_size=32] [--length=128] [--threads=2] --output=FILE.jsonl

The other half of the comparison in docs/notes/fine_tuning.md; it needs torch, transformers, accelerate, scikit-learn
and scipy, and nothing of lmx. DATA holds train.tsv, valid.tsv and perhaps test.tsv: a header, then sentence or
sentence1 and sentence2, and label. A line is written for each seed: its figures and the seconds of an epoch.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile

import numpy as np
import scipy.stats
import sklearn.metrics
import torch
import transformers


def figures(scores, labels):
  if scores.shape[-1] == 1:
    x = scores[:, 0]
    both = {'pearson': scipy.stats.pearsonr(x, labels)[0], 'spearman': scipy.stats.spearmanr(x, labels)[0]}
    return {name: 100 * float(value) for name, value in both.items()}
  said = scores.argmax(-1)
  both = {'accuracy': float(np.mean(said == labels))}
  if scores.shape[-1] == 2:
    both['matthews'] = sklearn.metrics.matthews_corrcoef(labels, said)
    both['f1'] = sklearn.metrics.f1_score(labels, said)
  return {name: 100 * float(x) for name, x in both.items()}


def split(path, tokenizer, names, length):
  with open(path, encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
  texts = [name for name in ('sentence', 'sentence1', 'sentence2') if name in rows[0]]
  label = (lambda row: names.index(row['label'])) if names else (lambda row: float(row['label']))
  read = lambda row: tokenizer(*(row[name] for name in texts), truncation=True, max_length=length)
  return [{**read(row), 'labels': label(row)} for row in rows]


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--model', required=True)
  parser.add_argument('--data', required=True)
  parser.add_argument('--score', action='store_true', help='the label is a number')
  parser.add_argument('--seeds', default='0')
  parser.add_argument('--epochs', type=float, default=3.0)
  parser.add_argument('--lr', type=float, default=5e-5)
  parser.add_argument('--batch_size', type=int, default=32)
  parser.add_argument('--length', type=int, default=128)
  parser.add_argument('--threads', type=int, default=os.cpu_count())
  parser.add_argument('--output', required=True)
  args = parser.parse_args()
  torch.set_num_threads(args.threads)
  tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
  names = []
  if not args.score:
    with open(f'{args.data}/train.tsv', encoding='utf-8') as file:
      names = sorted({line.rstrip('\n').rsplit('\t', 1)[1] for line in list(file)[1:]})
  files = [name for name in ('train', 'valid', 'test') if os.path.exists(f'{args.data}/{name}.tsv')]
  data = {name: split(f'{args.data}/{name}.tsv', tokenizer, names, args.length) for name in files}
  for seed in map(int, args.seeds.split(',')):
    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=max(1, len(names)))
    with tempfile.TemporaryDirectory() as directory:
      settings = transformers.TrainingArguments(
        output_dir=directory,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=64,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        weight_decay=0.01,
        adam_epsilon=1e-6,
        max_grad_norm=1.0,
        lr_scheduler_type='linear',
        warmup_steps=0.1,
        seed=seed,
        use_cpu=True,
        report_to='none',
        save_strategy='no',
        logging_steps=100000,
        disable_tqdm=True,
        dataloader_drop_last=True,
      )
      trainer = transformers.Trainer(
        model=model,
        args=settings,
        train_dataset=data['train'],
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
      )
      trained = trainer.train()
      trainer.args.dataloader_drop_last = False  # all rows are measured
    line = {
      'data': args.data,
      'seed': seed,
      'epochs': args.epochs,
      'lr': args.lr,
      'steps': trained.global_step,
      'seconds_per_epoch': trained.metrics['train_runtime'] / args.epochs,
    }
    for name in files[1:]:
      found = trainer.predict(data[name])
      line[name] = figures(np.asarray(found.predictions), np.asarray(found.label_ids))
    with open(args.output, 'a', encoding='utf-8') as file:
      file.write(json.dumps(line) + '\n')
    print(line, flush=True)


if __name__ == '__main__':
  main()
