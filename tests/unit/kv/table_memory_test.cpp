#include "kv/table_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>

namespace fairlead::kv {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

TEST(TableMemory, StartsAtCacheLinesAndFillsTheSmallestGap) {
  TableMemory memory;
  void* const first = memory.allocate(100'000);
  void* const second = memory.allocate(200'000);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 64, 0U);
  memory.release(first, 100'000);
  void* const fits = memory.allocate(90'000);
  EXPECT_EQ(fits, first);
  memory.release(fits, 90'000);
  memory.release(second, 200'000);
  // What was freed piece by piece is one piece again.
  void* const whole = memory.allocate(290'000);
  EXPECT_EQ(whole, first);
  memory.release(whole, 290'000);
}

TEST(TableMemory, HoldsTablesLargerThanItsMappings) {
  TableMemory memory;
  constexpr std::size_t kBytes = 70 * kMiB;
  auto* const table = static_cast<unsigned char*>(memory.allocate(kBytes));
  ASSERT_TRUE(table);
  table[0] = 1;
  table[kBytes - 1] = 2;
  memory.release(table, kBytes);
}

// Tables of all sizes come and go, often enough that pages go back to the kernel; none may lose
// what is in it or lie in another.
TEST(TableMemory, KeepsTablesApartWhileOthersComeAndGo) {
  TableMemory memory;
  std::mt19937_64 random(3);
  struct Table {
    std::size_t bytes;
    unsigned char mark;
  };
  std::map<unsigned char*, Table> tables;
  const auto intact = [](const unsigned char* at, const Table& table) {
    for (std::size_t i = 0; i < table.bytes; i += 1024) {
      if (at[i] != table.mark) {
        return false;
      }
    }
    return at[table.bytes - 1] == table.mark;
  };
  for (int i = 0; i < 2000; ++i) {
    if (tables.size() < 24 && random() % 2 == 0) {
      const Table table{.bytes = 64 * 1024 + random() % (3 * kMiB),
                        .mark = static_cast<unsigned char>(random())};
      auto* const at = static_cast<unsigned char*>(memory.allocate(table.bytes));
      ASSERT_TRUE(at);
      const auto after = tables.lower_bound(at);
      ASSERT_TRUE(after == tables.end() || at + table.bytes <= after->first);
      if (after != tables.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second.bytes, at);
      }
      std::memset(at, table.mark, table.bytes);
      tables.emplace(at, table);
    } else if (!tables.empty()) {
      const auto chosen =
          std::next(tables.begin(), static_cast<std::ptrdiff_t>(random() % tables.size()));
      ASSERT_TRUE(intact(chosen->first, chosen->second));
      memory.release(chosen->first, chosen->second.bytes);
      tables.erase(chosen);
    }
  }
  for (const auto& [at, table] : tables) {
    EXPECT_TRUE(intact(at, table));
    memory.release(at, table.bytes);
  }
}

}  // namespace
}  // namespace fairlead::kv
