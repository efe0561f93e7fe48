"""Text without spaces between words is recognised by its language or by its characters."""

from __future__ import annotations

import pytest

from lmx.metrics import writing_systems


@pytest.mark.parametrize(
  ('texts', 'language', 'unspaced'),
  [
    (['我喜欢在公园散步。', '今天天气非常好'], '', True),
    (['เขาซื้อหนังสือสามเล่มเมื่อวานนี้ และกลับบ้าน'], '', True),
    (['公園を散歩するのが好きです。'], 'tgt', True),
    (['我 喜欢 在 公园 散步'], '', False),
    (['나는 공원에서 산책하는 것을 좋아한다.'], '', False),
    (['The word 猫 means cat, and 犬 means dog.'], '', False),
    (['word'], 'zh-TW', True),
    ([], '', False),
  ],
)
def test_spaces_and_characters_decide(texts, language, unspaced):
  assert writing_systems.is_unspaced(texts, language) is unspaced


def test_characters_are_separated_as_in_mlqa():
  assert writing_systems.separate('北京，2008年 Olympic games') == '北 京 2008 年 Olympic games'
  assert writing_systems.count_characters('我 喜欢\n猫') == 4
  assert writing_systems.code('zho') == writing_systems.code('zh_CN') == 'zh' and writing_systems.code('de') == 'de'
