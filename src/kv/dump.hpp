#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "kv/checkpoint.hpp"
#include "kv/index.hpp"

// The lines of `/v1/kv/dump`, written and read: one JSON document each, as docs/routing.md says.

namespace fairlead::kv {

/// Version of the lines; another one is not read.
inline constexpr int kDumpVersion = 2;
/// Most blocks, or salts, in one line.
inline constexpr std::size_t kDumpedPerLine = 512;
/// Longest line that is read.
inline constexpr std::size_t kMaxDumpLine = std::size_t{1} << 20U;

/// One target of a dump.
struct DumpedTarget {
  std::string model;             ///< Whose prompts.
  std::string name_space;        ///< Of its worker set.
  std::string role;              ///< Of its worker set.
  std::uint32_t block_size = 0;  ///< Tokens per block.
  bool bigram = false;           ///< How prompts are hashed.
  std::uint64_t worker_id = 0;   ///< The same in every frontend that knows the engine by its URL.
  std::uint32_t rank = 0;        ///< Data-parallel rank.
  std::string endpoint;          ///< Of the worker; empty when it is gone.
  std::string instance_id;       ///< Of the engine; empty when it tells none.
  std::string state;             ///< Of the view.
  std::optional<Checkpoint>
      checkpoint;                 ///< What lets the view be gone on with; blocks are as then.
  std::vector<HeldBlock> blocks;  ///< Everything held.
};

/// Appends the line that begins a dump.
void append_dump_start(std::string& out);
/// Appends the lines that begin a target: all but its blocks, of which only the number.
void append_dump_target(std::string& out, const DumpedTarget& target);
/// Appends lines of blocks: `{"blocks":[[engine hash, sequence hash, copies by tier ...], ...]}`.
void append_dump_blocks(std::string& out, std::span<const HeldBlock> blocks);
/// Appends the line that ends a whole dump.
void append_dump_end(std::string& out, std::size_t targets, std::size_t blocks);

/// Reads a dump as it arrives. Blocks of targets without a checkpoint are checked and dropped.
class DumpReader {
 public:
  /// Holds at most so many bytes of blocks and salts.
  explicit DumpReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Takes what came next. The first error sticks.
  Result<> feed(std::string_view bytes);
  /// The targets, once everything was fed; an error when the dump is not whole.
  Result<std::vector<DumpedTarget>> take();

 private:
  Result<> line(std::string_view text);
  Result<> head(std::string_view text);
  Result<> rows(std::string_view text);
  bool hold(std::size_t count, std::size_t bytes_each);

  std::size_t max_bytes_;
  std::size_t held_bytes_ = 0;
  std::string rest_;  // of a line that is not complete
  Result<> failed_;
  bool started_ = false;
  bool ended_ = false;
  std::vector<DumpedTarget> targets_;
  std::size_t blocks_ = 0;       // of all targets so far
  std::size_t blocks_left_ = 0;  // of the last one
  std::size_t salted_left_ = 0;
  std::vector<std::uint64_t> numbers_;  // kept for its memory
};

}  // namespace fairlead::kv
