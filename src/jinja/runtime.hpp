#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/object.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

/// Bounds of one render. Whatever the template does, the render ends with an error when it crosses
/// one. The defaults are what a hostile template may cost: 100 ms and 64 MB.
struct Limits {
  std::size_t max_output_bytes = std::size_t{8} << 20;  ///< Size of the result.
  std::size_t max_live_bytes = std::size_t{24} << 20;   ///< Memory held by values at any time.
  std::uint64_t max_steps = 3'000'000;  ///< Evaluated nodes plus 1 per 16 bytes of text handled.
  int max_calls = 200;                  ///< Depth of macro, caller and recursive-loop calls.
  std::size_t max_stack_bytes = std::size_t{768} << 10;  ///< Machine stack below the entry.

  /// The defaults, and room to handle `bytes` of input a few dozen times.
  static Limits for_input(std::size_t bytes) {
    Limits limits;
    limits.max_output_bytes += 4 * bytes;
    limits.max_live_bytes += 8 * bytes;
    // Templates that look at every message for every message need more while these are small.
    limits.max_steps +=
        std::max<std::uint64_t>(16 * bytes, std::min<std::uint64_t>(128 * bytes, 17'000'000));
    return limits;
  }
};

/// State of one render that operations on values share: the error, the limits, the clock.
class Runtime {
 public:
  /// Begins counting. `now` is the ISO local time that `strftime_now` sees; absent: the clock. The
  /// render fails soon after `stop` is requested.
  Runtime(const Limits& limits, std::optional<std::string> now, std::stop_token stop = {});

  /// True after the first error.
  bool failed() const { return failed_; }
  /// The first error's message.
  const std::string& error() const { return error_; }
  /// Records the error unless there is one already. Returns the unset marker.
  Value fail(std::string message);

  /// Counts work; false when it was too much.
  bool step(std::uint64_t count = 1) {
    steps_ += count;
    return steps_ <= next_look_ || look();
  }
  /// Counts `bytes` of text that are read or written.
  bool charge(std::size_t bytes) { return step(1 + bytes / 16); }
  /// The same for work that looks at one character after the other.
  bool charge_slow(std::size_t bytes) { return step(1 + bytes / 2); }
  /// Counts `bytes` of memory that are about to be taken; false when it is too much.
  bool reserve(std::size_t bytes);
  /// False when the machine stack is nearly used up.
  bool check_stack();
  /// The limits.
  const Limits& limits() const { return limits_; }
  /// Most bytes that one text may still have.
  std::size_t text_room() const;
  /// The ISO local time to report, or none for the clock.
  const std::optional<std::string>& now() const { return now_; }

  /// A new text, or the unset marker when the limit is crossed.
  Value string(std::string_view text, bool markup = false);
  /// A part of `source`, which keeps the memory shared.
  static Value part(const Value& source, std::string_view text, bool markup);
  /// A list or tuple.
  Value sequence(Kind kind, std::vector<Value> items);
  /// A list.
  Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
  /// A tuple.
  Value tuple(std::vector<Value> items) { return sequence(Kind::Tuple, std::move(items)); }
  /// A dict.
  Value dict(DictStore store);
  /// A namespace; it is emptied when the render ends, so that cycles are freed.
  Value make_namespace();
  /// An iterator of type `T`; its depth is checked.
  template <class T, class... Args>
  Value iterator(Args&&... args) {
    auto* object = new T(std::forward<Args>(args)...);
    Value value = Value::adopt(Kind::Iterator, object);
    return object->depth() > kMaxNesting ? fail("iterators are nested too deeply") : value;
  }

  /// Empties the namespaces.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

 private:
  bool look();

  Runtime* previous_;
  const Limits limits_;
  const std::optional<std::string> now_;
  const std::stop_token stop_;
  std::uint64_t steps_ = 0;
  std::uint64_t next_look_ = 0;  // after so many steps it is time to look whether to go on
  std::int64_t base_bytes_;
  const char* stack_base_;
  bool failed_ = false;
  std::string error_;
  std::vector<Value> namespaces_;
};

/// The render that is under way on this thread, or null.
inline thread_local constinit Runtime* current_runtime = nullptr;

/// Walks any iterable.
class Cursor {
 public:
  /// Starts at the first element; an error is left in `runtime` when `iterable` is none.
  Cursor(Runtime& runtime, const Value& iterable);

  /// The next element; false at the end and on an error.
  bool next(Value& out);
  /// Number of all elements when Python's `len` knows it.
  std::optional<std::size_t> size() const { return size_; }
  /// Elements when they lie in memory, else null.
  const Value* items() const { return items_; }

 private:
  Runtime& runtime_;
  Value source_;
  const Value* items_ = nullptr;
  const Pair* pairs_ = nullptr;
  std::optional<std::size_t> size_;
  std::size_t position_ = 0;
};

/// Collects elements under the limits.
class ListBuilder {
 public:
  /// Under the limits of `runtime`.
  explicit ListBuilder(Runtime& runtime) : runtime_(runtime) {}
  /// Adds one; false on an error.
  bool push(Value value);
  /// All elements of an iterable; false on an error.
  bool extend(const Value& iterable);
  /// The elements.
  std::vector<Value> take() { return std::move(items_); }

 private:
  Runtime& runtime_;
  std::vector<Value> items_;
};

/// All elements of an iterable as a new list, or the unset marker.
Value to_list(Runtime& runtime, const Value& iterable);

}  // namespace fairlead::jinja
