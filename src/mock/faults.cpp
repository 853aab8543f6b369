#include "mock/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "net/grpc.hpp"

namespace fairlead::mock {
namespace {

struct Row {
  std::string_view name;
  FaultKind kind;
  std::string_view arguments;  // as shown in errors; empty = none
};

constexpr std::array<Row, 15> kRows = {{
    {"refuse", FaultKind::Refuse, ""},
    {"stall-open", FaultKind::StallOpen, "[:all]"},
    {"stall-after", FaultKind::StallAfter, ":N"},
    {"reset-after", FaultKind::ResetAfter, ":N"},
    {"end-after", FaultKind::EndAfter, ":N"},
    {"error-after", FaultKind::ErrorAfter, ":N:STATUS"},
    {"slow", FaultKind::Slow, ":MS"},
    {"drop-event", FaultKind::DropEvent, ":P"},
    {"not-serving", FaultKind::NotServing, ""},
    {"logprobs-null", FaultKind::LogprobsNull, ""},
    {"logprobs-empty", FaultKind::LogprobsEmpty, ""},
    {"logprobs-short", FaultKind::LogprobsShort, ""},
    {"logprob-nan", FaultKind::LogprobNan, ":N"},
    {"logprob-unsampled", FaultKind::LogprobUnsampled, ":N"},
    {"cumulative", FaultKind::Cumulative, ""},
}};

constexpr int kFirstHttpStatus = 400;

struct StatusPair {
  net::grpc::StatusCode grpc;
  int http;
};

// As gRPC's guide pairs them; the first of a kind is the one that is said.
constexpr std::array<StatusPair, 16> kStatuses = {{
    {net::grpc::StatusCode::Unavailable, 503},
    {net::grpc::StatusCode::Internal, 500},
    {net::grpc::StatusCode::ResourceExhausted, 429},
    {net::grpc::StatusCode::InvalidArgument, 400},
    {net::grpc::StatusCode::NotFound, 404},
    {net::grpc::StatusCode::DeadlineExceeded, 504},
    {net::grpc::StatusCode::Unimplemented, 501},
    {net::grpc::StatusCode::PermissionDenied, 403},
    {net::grpc::StatusCode::Unauthenticated, 401},
    {net::grpc::StatusCode::Aborted, 409},
    {net::grpc::StatusCode::Cancelled, 499},
    {net::grpc::StatusCode::FailedPrecondition, 400},
    {net::grpc::StatusCode::OutOfRange, 400},
    {net::grpc::StatusCode::AlreadyExists, 409},
    {net::grpc::StatusCode::Unknown, 500},
    {net::grpc::StatusCode::DataLoss, 500},
}};

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int> status_code(std::string_view text) {
  for (int code = 1; code <= 16; ++code) {
    if (net::grpc::status_name(static_cast<net::grpc::StatusCode>(code)) == text) {
      return code;
    }
  }
  const auto code = number<int>(text);
  const bool known = code && ((*code >= 1 && *code <= 16) || (*code >= 400 && *code <= 599));
  return known ? code : std::nullopt;
}

bool parse_arguments(Fault& fault, std::string_view text) {
  switch (fault.kind) {
    case FaultKind::Refuse:
    case FaultKind::NotServing:
    case FaultKind::LogprobsNull:
    case FaultKind::LogprobsEmpty:
    case FaultKind::LogprobsShort:
    case FaultKind::Cumulative: return text.empty();
    case FaultKind::StallOpen: fault.all = text == "all"; return text.empty() || fault.all;
    case FaultKind::StallAfter:
    case FaultKind::ResetAfter:
    case FaultKind::EndAfter:
    case FaultKind::LogprobNan:
    case FaultKind::LogprobUnsampled: {
      const auto tokens = number<std::uint64_t>(text);
      fault.tokens = tokens.value_or(0);
      return tokens.has_value();
    }
    case FaultKind::ErrorAfter: {
      const std::size_t colon = text.find(':');
      if (colon == std::string_view::npos) {
        return false;
      }
      const auto tokens = number<std::uint64_t>(text.substr(0, colon));
      const auto status = status_code(text.substr(colon + 1));
      fault.tokens = tokens.value_or(0);
      fault.status = status.value_or(0);
      return tokens && status;
    }
    case FaultKind::Slow: {
      const auto ms = number<std::uint32_t>(text);
      fault.delay = std::chrono::milliseconds(ms.value_or(0));
      return ms.has_value();
    }
    case FaultKind::DropEvent: {
      const auto probability = number<double>(text);
      fault.probability = probability.value_or(0);
      return probability && *probability >= 0 && *probability <= 1;
    }
  }
  return false;
}

}  // namespace

Result<Fault> parse_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view arguments =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  std::string known;
  for (const Row& row : kRows) {
    if (row.name == name) {
      Fault fault{row.kind};
      if (!parse_arguments(fault, arguments)) {
        return fail(ErrorCode::InvalidRequest,
                    fmt::format("`{}`: expected {}{}", text, row.name, row.arguments), "--fault");
      }
      return fault;
    }
    known += fmt::format("{}{}{}", known.empty() ? "" : ", ", row.name, row.arguments);
  }
  return fail(ErrorCode::InvalidRequest, fmt::format("no fault `{}`; known: {}", name, known),
              "--fault");
}

std::string format_fault(const Fault& fault) {
  std::string_view name;
  for (const Row& row : kRows) {
    if (row.kind == fault.kind) {
      name = row.name;
    }
  }
  switch (fault.kind) {
    case FaultKind::Refuse:
    case FaultKind::NotServing:
    case FaultKind::LogprobsNull:
    case FaultKind::LogprobsEmpty:
    case FaultKind::LogprobsShort:
    case FaultKind::Cumulative: return std::string(name);
    case FaultKind::StallOpen: return fmt::format("{}{}", name, fault.all ? ":all" : "");
    case FaultKind::StallAfter:
    case FaultKind::ResetAfter:
    case FaultKind::EndAfter:
    case FaultKind::LogprobNan:
    case FaultKind::LogprobUnsampled: return fmt::format("{}:{}", name, fault.tokens);
    case FaultKind::ErrorAfter:
      return fault.status >= kFirstHttpStatus
                 ? fmt::format("{}:{}:{}", name, fault.tokens, fault.status)
                 : fmt::format(
                       "{}:{}:{}", name, fault.tokens,
                       net::grpc::status_name(static_cast<net::grpc::StatusCode>(fault.status)));
    case FaultKind::Slow: return fmt::format("{}:{}", name, fault.delay.count());
    case FaultKind::DropEvent: return fmt::format("{}:{}", name, fault.probability);
  }
  return std::string(name);
}

int grpc_status(const Fault& fault) {
  if (fault.status < kFirstHttpStatus) {
    return fault.status;
  }
  const auto* pair = std::ranges::find(kStatuses, fault.status, &StatusPair::http);
  return static_cast<int>(pair == kStatuses.end() ? net::grpc::StatusCode::Unknown : pair->grpc);
}

int http_status(const Fault& fault) {
  if (fault.status >= kFirstHttpStatus) {
    return fault.status;
  }
  const auto code = static_cast<net::grpc::StatusCode>(fault.status);
  const auto* pair = std::ranges::find(kStatuses, code, &StatusPair::grpc);
  return pair == kStatuses.end() ? 500 : pair->http;
}

const Fault* find_fault(std::span<const Fault> faults, FaultKind kind) {
  for (const Fault& fault : faults) {
    if (fault.kind == kind) {
      return &fault;
    }
  }
  return nullptr;
}

}  // namespace fairlead::mock
