#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace fairlead::kv {

/// Memory of large tables on huge pages where the kernel has them (`madvise`). Tables are read at
/// random places, so with small pages nearly every access would also miss the TLB.
///
/// Tables lie one behind the other in mappings of `kMapping` bytes or more, each in the smallest
/// gap. What is freed serves the next table; after every `kTrimBytes` and a 16th of what is in use,
/// huge pages without a table go back to the kernel. Any thread.
class TableMemory {
 public:
  /// Bytes from which a table is worth a place here.
  static constexpr std::size_t kLeast = std::size_t{64} << 10U;

  /// Takes nothing before the first table.
  TableMemory() = default;
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;
  /// All tables are gone, or will not be used again.
  ~TableMemory();

  /// `bytes` at the start of a cache line; null when the system has none. Not zeroed.
  void* allocate(std::size_t bytes);
  /// Frees what `allocate` gave for `bytes`.
  void release(void* memory, std::size_t bytes);

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20U;
  static constexpr std::size_t kMapping = std::size_t{32} << 20U;
  static constexpr std::size_t kTrimBytes = std::size_t{4} << 20U;

  std::map<std::uintptr_t, std::size_t>::iterator smallest_for(std::size_t bytes);
  bool map(std::size_t bytes);
  void trim();

  struct Mapping {
    void* memory;
    std::size_t bytes;
  };

  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::map<std::uintptr_t, std::size_t> free_;  // address → bytes; merged when freed
  std::size_t used_ = 0;
  std::size_t freed_ = 0;  // since the last `trim`
};

}  // namespace fairlead::kv
