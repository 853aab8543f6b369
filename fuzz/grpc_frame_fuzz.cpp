// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "net/grpc_wire.hpp"

// Cutting a stream of messages anywhere gives the same messages and the same end as reading it
// whole. The first two bytes choose the bound and the cuts.

namespace {

using fairlead::net::grpc::MessageReader;

struct Outcome {
  std::vector<std::string> messages;
  MessageReader::Status end = MessageReader::Status::NeedMore;
  bool at_boundary = true;
  bool operator==(const Outcome&) const = default;
};

// `cuts` is a linear congruential state; 0 reads everything at once.
Outcome read(std::string_view bytes, std::size_t bound, std::uint32_t cuts) {
  Outcome out;
  MessageReader reader(bound);
  std::size_t at = 0;
  while (at < bytes.size()) {
    cuts = cuts == 0 ? 0 : cuts * 1664525 + 1013904223;
    const std::size_t step = cuts == 0 ? bytes.size() : 1 + (cuts >> 16) % 9;
    const std::string piece(bytes.substr(at, step));  // its own memory: overruns are seen
    at += piece.size();
    std::string_view input = piece;
    std::string_view message;
    MessageReader::Status status{};
    while ((status = reader.next(input, message)) == MessageReader::Status::Message) {
      out.messages.emplace_back(message);
    }
    if (status != MessageReader::Status::NeedMore) {
      out.end = status;
      return out;
    }
    if (!input.empty()) {
      std::abort();
    }
  }
  out.at_boundary = reader.at_boundary();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t bound = std::size_t{data[0]} * 8;
  const Outcome whole = read(bytes, bound, 0);
  for (std::uint32_t cuts = 1; cuts < 4; ++cuts) {
    if (!(read(bytes, bound, cuts * 256 + data[1]) == whole)) {
      std::abort();
    }
  }
  // What was read must be what was written.
  std::string again;
  for (const std::string& message : whole.messages) {
    fairlead::net::grpc::append_message(again, message);
  }
  if (!bytes.starts_with(again)) {
    std::abort();
  }
  return 0;
}
