// links: fl_tokenizer
//
// Run from the project root after tools/fetch_test_assets.sh, or name a model folder in
// FAIRLEAD_BENCH_MODEL. "Cold" encodes a text with a freshly loaded tokenizer.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/piece_cache.hpp"
#include "tokenizer/tokenizer.hpp"

namespace {

using fairlead::tokenizer::IncrementalDecoder;
using fairlead::tokenizer::PieceCache;
using fairlead::tokenizer::TokenId;
using fairlead::tokenizer::Tokenizer;

constexpr std::size_t kTextBytes = 240 * 1024;

const char* const kEnglish[] = {
    "The harbour master watched the ferry turn slowly against the tide, its bow thrusters churning "
    "grey water into foam. ",
    "Nobody expected the committee to reach an agreement before Thursday, least of all its chair. ",
    "In 1847 the observatory recorded its first photograph of the moon, exposed for nearly twenty "
    "minutes. ",
    "\"I'm not convinced,\" she said, \"that we've measured what we think we've measured.\" ",
    "Photosynthesis converts light energy into chemical energy, which is stored in carbohydrate "
    "molecules synthesized from carbon dioxide and water.\n\n",
    "Please find attached the revised quotation; prices don't include shipping or local taxes. ",
    "The algorithm's running time grows linearly with the length of its input unless the hash "
    "table "
    "degenerates. ",
    "Researchers at three universities independently reproduced the result using different "
    "instruments and statistical methods. ",
    "Heavy rain is forecast for the western valleys, with up to 45 mm expected by Friday evening. ",
    "He'd forgotten his keys, his umbrella and, as it turned out, the reason for his visit.\n",
    "Interest rates remained unchanged at 3.75 percent, although two members voted for an "
    "increase. ",
    "Wash the lentils, cover them with cold water and simmer gently for about twenty-five "
    "minutes. ",
    "A well-designed interface makes the right thing easy and the wrong thing noticeably awkward. ",
    "Under the microscope the crystals appeared as thin hexagonal plates with rounded corners. ",
};

const char* const kCode[] = {
    "def normalize(rows: list[dict], *, key: str = \"id\") -> dict[str, dict]:\n"
    "    \"\"\"Index rows by key; later rows win.\"\"\"\n"
    "    result = {}\n    for row in rows:\n        if key not in row:\n            continue\n"
    "        result[row[key]] = {k: v for k, v in row.items() if v is not None}\n    return "
    "result\n\n",
    "static int parse_header(const uint8_t *buf, size_t len, struct header *out)\n{\n"
    "\tif (len < sizeof(*out))\n\t\treturn -EINVAL;\n\tmemcpy(out, buf, sizeof(*out));\n"
    "\tout->flags = le32toh(out->flags) & 0x0000ffff;\n\treturn 0;\n}\n\n",
    "export async function fetchUser(userId, { signal } = {}) {\n"
    "  const res = await fetch(`/api/v2/users/${encodeURIComponent(userId)}`, { signal });\n"
    "  if (!res.ok) throw new HttpError(res.status, await res.text());\n  return "
    "res.json();\n}\n\n",
    "template <typename Iterator, typename Compare>\nvoid insertion_sort(Iterator first, Iterator "
    "last, "
    "Compare comp) {\n    for (auto it = first; it != last; ++it) {\n"
    "        std::rotate(std::upper_bound(first, it, *it, comp), it, std::next(it));\n    }\n}\n\n",
    "SELECT o.customer_id, COUNT(*) AS orders, SUM(o.total_cents) / 100.0 AS revenue\nFROM orders "
    "o\n"
    "JOIN customers c ON c.id = o.customer_id\nWHERE o.created_at >= '2025-01-01'\n"
    "GROUP BY 1\nHAVING COUNT(*) > 3\nORDER BY revenue DESC\nLIMIT 50;\n\n",
    "{\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": "
    "{\"type\": \"string\"}, \"unit\": {\"enum\": [\"celsius\", \"fahrenheit\"]}}, \"required\": "
    "[\"city\"]}}\n",
};

const char* const kChinese[] = {
    "清晨的雾气还没有散去，渔船已经缓缓驶出了港口。",
    "研究人员发现，这种材料在低温下的导电性能远远超过预期，但其成因目前尚不清楚。",
    "请在提交申请之前仔细阅读下列说明，并确认您的个人信息准确无误。\n",
    "人工智能技术的快速发展正在深刻改变我们的生活方式和工作方式。",
    "他把旧书一本一本地擦干净，按照年代重新排列在书架上。",
    "根据最新公布的数据，今年第三季度的出口额同比增长了百分之六点五。",
    "这道菜的关键在于火候：火太大容易焦，火太小又不够香。",
    "会议决定将项目的截止日期推迟到2026年3月15日，以便各部门有充足的时间进行测试。\n\n",
    "山谷里的溪水清澈见底，偶尔有几条小鱼从石缝间游过。",
    "数据库的索引设计不当，会导致查询速度变慢，甚至影响整个系统的稳定性。",
    "“我并不赞成这个方案，”她平静地说，“不过我愿意听听大家的意见。”",
    "老城区的街道狭窄而曲折，两旁是各式各样的小店和茶馆。",
};

const char* const kOther[] = {
    "Größere Änderungen müssen vor dem Übergang geprüft werden. ",
    "Быстрая проверка показала, что соединение было разорвано раньше срока. ",
    "東京の朝は早く、駅前はもう人でいっぱいだった。",
    "서버가 응답하지 않으면 잠시 후 다시 시도해 주세요. ",
    "L'été dernier, nous avons traversé la forêt à pied. ",
    "وصل القطار إلى المحطة قبل موعده بعشر دقائق. ",
    "🚀 v2.14.0-rc.3 → https://example.org/releases?tag=v2.14.0&ref=42 ✅\n",
};

template <std::size_t kSize>
void append_one(std::string& text, const char* const (&parts)[kSize], std::mt19937& random) {
  text += parts[random() % kSize];
}

// Sentences in random order with random numbers and names between them.
std::string make_text(int kind) {
  std::mt19937 random(12345);
  std::string text;
  while (text.size() < kTextBytes) {
    switch (kind == 3 ? static_cast<int>(random() % 4) : kind) {
      case 0: append_one(text, kEnglish, random); break;
      case 1: append_one(text, kCode, random); break;
      case 2: append_one(text, kChinese, random); break;
      default: append_one(text, kOther, random); break;
    }
    if (random() % 8 == 0) {
      text += std::to_string(random());
      text += ' ';
    }
  }
  return text;
}

const char* const kKinds[] = {"english", "code", "chinese", "mixed"};

// What is measured is encoding, so nothing is kept of what was encoded before.
std::shared_ptr<const Tokenizer> load(benchmark::State& state) {
  PieceCache::of_process().set_limit(0);
  const char* folder = std::getenv("FAIRLEAD_BENCH_MODEL");
  auto tokenizer = Tokenizer::load(folder != nullptr ? folder : "tests/.assets/qwen3");
  if (!tokenizer) {
    state.SkipWithError(tokenizer.error().message.c_str());
    return nullptr;
  }
  return *tokenizer;
}

void load_file(benchmark::State& state) {
  for (auto _ : state) {
    if (load(state) == nullptr) {
      return;
    }
  }
}
BENCHMARK(load_file)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state, bool cold) {
  const std::string text = make_text(static_cast<int>(state.range(0)));
  std::shared_ptr<const Tokenizer> tokenizer = load(state);
  if (tokenizer == nullptr) {
    return;
  }
  std::vector<TokenId> ids;
  for (auto _ : state) {
    if (cold) {
      state.PauseTiming();
      tokenizer = load(state);
      state.ResumeTiming();
    }
    ids.clear();
    benchmark::DoNotOptimize(tokenizer->encode(text, false, ids));
  }
  state.SetLabel(kKinds[state.range(0)]);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(ids.size());
}

void encode_cold(benchmark::State& state) { encode(state, true); }
BENCHMARK(encode_cold)->DenseRange(0, 3)->Iterations(20)->Unit(benchmark::kMillisecond);

void encode_warm(benchmark::State& state) { encode(state, false); }
BENCHMARK(encode_warm)->DenseRange(0, 3)->Unit(benchmark::kMillisecond);

// One text of so many bytes again and again: encoded each time, or found.
void encode_again(benchmark::State& state, std::size_t cache_bytes) {
  const std::string text = make_text(0).substr(0, static_cast<std::size_t>(state.range(0)));
  static const std::shared_ptr<const Tokenizer> tokenizer = load(state);
  if (tokenizer == nullptr) {
    return;
  }
  PieceCache::of_process().set_limit(cache_bytes);
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    benchmark::DoNotOptimize(tokenizer->encode(text, false, ids));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void encode_again_uncached(benchmark::State& state) { encode_again(state, 0); }
BENCHMARK(encode_again_uncached)->RangeMultiplier(2)->Range(128, kTextBytes);
void encode_again_cached(benchmark::State& state) {
  encode_again(state, PieceCache::kDefaultLimit);
}
BENCHMARK(encode_again_cached)->RangeMultiplier(2)->Range(128, kTextBytes);
BENCHMARK(encode_again_cached)->Arg(PieceCache::kMinBytes)->Threads(2);

void decode_stream(benchmark::State& state) {
  const std::shared_ptr<const Tokenizer> tokenizer = load(state);
  std::vector<TokenId> ids;
  if (tokenizer == nullptr ||
      !tokenizer->encode(make_text(static_cast<int>(state.range(0))), false, ids)) {
    return;
  }
  std::string delta;
  for (auto _ : state) {
    IncrementalDecoder decoder(*tokenizer, true);
    for (const TokenId id : ids) {
      delta.clear();
      decoder.push(id, delta);
      benchmark::DoNotOptimize(delta.data());
    }
  }
  state.SetLabel(kKinds[state.range(0)]);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ids.size()));
}
BENCHMARK(decode_stream)->DenseRange(0, 3);

const char* const kLongWords[] = {"one letter", "spaces", "newlines", "random letters"};

void encode_long_word(benchmark::State& state) {
  const std::shared_ptr<const Tokenizer> tokenizer = load(state);
  if (tokenizer == nullptr) {
    return;
  }
  std::mt19937 random(1);
  std::string word;
  while (word.size() < static_cast<std::size_t>(state.range(1))) {
    const char all[] = {'a', ' ', '\n', static_cast<char>('a' + random() % 26)};
    word += all[state.range(0)];
  }
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    benchmark::DoNotOptimize(tokenizer->encode(word, false, ids));
  }
  state.SetLabel(kLongWords[state.range(0)]);
  state.SetBytesProcessed(state.iterations() * state.range(1));
}
BENCHMARK(encode_long_word)
    ->ArgsProduct({{0, 1, 2, 3}, {1'000, 10'000, 100'000, 1'000'000}})
    ->Unit(benchmark::kMillisecond);

// Seconds of CPU time this thread has used.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The first encoding of a file's text by a fresh tokenizer (cold), or that after the kind's warm
// text. Several texts in one file are divided by NUL; cold, only the first one counts.
void encode_text(benchmark::State& state, const std::filesystem::path& path, bool warm) {
  const std::string all = read_file(path);
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size() && (warm || begin == 0);) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    texts.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<TokenId> ids;
  std::uint32_t fingerprint = 0;
  std::size_t count = 0;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    const std::shared_ptr<const Tokenizer> tokenizer = load(state);
    if (tokenizer == nullptr) {
      return;
    }
    if (warm) {
      std::string kind = path.filename().string();
      kind.resize(kind.find('.'));
      benchmark::DoNotOptimize(
          tokenizer->encode(read_file(path.parent_path() / (kind + ".warm.txt")), false, ids));
    }
    double seconds = 0;
    for (const std::string& text : texts) {
      ids = {};
      const double begin = thread_seconds();
      benchmark::DoNotOptimize(tokenizer->encode(text, false, ids));
      seconds += thread_seconds() - begin;
      for (const TokenId id : ids) {
        fingerprint = fingerprint * 1'000'003 + id + 1;
      }
      count += ids.size();
      bytes += static_cast<std::int64_t>(text.size());
    }
    state.SetIterationTime(seconds);
  }
  state.SetLabel(std::to_string(count) + ":" + std::to_string(fingerprint));
  state.SetBytesProcessed(bytes);
}

// One benchmark per text of the folder FAIRLEAD_BENCH_TEXTS (bench/tokenizer_table.py).
const bool kTexts = [] {
  const char* folder = std::getenv("FAIRLEAD_BENCH_TEXTS");
  if (folder == nullptr) {
    return false;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    const std::size_t dot = file.find('.');
    const std::string size = file.substr(dot + 1, file.rfind('.') - dot - 1);
    if (!file.ends_with(".txt") || size == "warm") {
      continue;
    }
    for (const bool warm : {false, true}) {
      const std::string name =
          "text/" + file.substr(0, dot) + "/" + size + (warm ? "/warm" : "/cold");
      benchmark::RegisterBenchmark(name.c_str(), encode_text, entry.path(), warm)
          ->Iterations(1)
          ->UseManualTime();
    }
  }
  return true;
}();

}  // namespace
