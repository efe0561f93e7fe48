"""An epoch of fine-tuning with transformers' Trainer, for `lmx bench --preset=fine_tuning`.

  python trainer_epoch.py MODEL DATA BATCH LENGTH THREADS

It imports nothing from lmx; its interpreter needs torch, transformers and accelerate. MODEL is a folder with weights,
DATA has train.tsv and valid.tsv with the columns sentence1, sentence2 and label. Settings equal
experiments/bert/tasks.py. The last output line is a JSON object with versions and the training time.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from typing import Any


def read(path: str, tokenizer: Any, length: int) -> list[Any]:
  """Return the rows of a table, tokenized."""
  with open(path, encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
  names = sorted({row['label'] for row in rows})
  encode = lambda row: tokenizer(row['sentence1'], row['sentence2'], truncation=True, max_length=length)
  return [{**encode(row), 'labels': names.index(row['label'])} for row in rows]


def main(model_path: str, data_path: str, sizes: list[int]) -> None:
  """Fine-tune, evaluate, and print the result; `sizes` are BATCH, LENGTH and THREADS."""
  import torch
  import transformers

  batch, length, threads = sizes
  torch.set_num_threads(threads)
  tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
  model = transformers.AutoModelForSequenceClassification.from_pretrained(model_path, num_labels=2)
  data = {name: read(f'{data_path}/{name}.tsv', tokenizer, length) for name in ('train', 'valid')}
  with tempfile.TemporaryDirectory() as directory:
    settings = transformers.TrainingArguments(
      output_dir=directory,
      per_device_train_batch_size=batch,
      per_device_eval_batch_size=64,
      num_train_epochs=1,
      learning_rate=1e-4,
      weight_decay=0.01,
      adam_epsilon=1e-6,
      max_grad_norm=1.0,
      lr_scheduler_type='linear',
      warmup_steps=len(data['train']) // batch // 10,
      use_cpu=True,
      report_to='none',
      save_strategy='epoch',
      eval_strategy='epoch',
      disable_tqdm=True,
      dataloader_drop_last=True,
    )
    trainer = transformers.Trainer(
      model=model,
      args=settings,
      train_dataset=data['train'],
      eval_dataset=data['valid'],
      data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    trained = trainer.train()
    trainer.evaluate()
  about = {'torch': torch.__version__, 'transformers': transformers.__version__, 'updates': trained.global_step}
  print(json.dumps({**about, 'training_seconds': trained.metrics['train_runtime']}))


if __name__ == '__main__':
  if len(sys.argv) != 6:
    print(__doc__)
    sys.exit(2)
  main(sys.argv[1], sys.argv[2], [int(word) for word in sys.argv[3:]])
