#include "hub/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.hpp"
#include "base/log.hpp"
#include "hub/checksum.hpp"
#include "hub/url.hpp"
#include "hub/wait.hpp"

namespace fairlead::hub {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxListBytes = std::size_t{16} << 20;
constexpr int kMaxRedirects = 10;
// Between tries, doubled each time; and the longest that a server may ask for.
constexpr milliseconds kFirstPause(300);
constexpr milliseconds kMaxPause(30'000);
// A connection that broke after so much is worth another row of tries.
constexpr std::uint64_t kProgressBytes = std::uint64_t{64} << 10;
// An answer may differ from its checksum so many times: what was there before may be what is wrong.
constexpr int kMaxWrongSums = 2;

std::unexpected<Failure> hopeless(std::string message) {
  return std::unexpected(Failure{.message = std::move(message)});
}

std::unexpected<Failure> passing(std::string message) {
  return std::unexpected(Failure{.message = std::move(message), .again = true});
}

std::optional<std::uint64_t> number(const std::string* text) {
  std::uint64_t value = 0;
  if (!text || text->empty()) {
    return std::nullopt;
  }
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_good(long status) { return status >= 200 && status < 300; }

/// Where the bytes of a partial answer begin.
std::optional<std::uint64_t> range_start(const Head& head) {
  const std::string* range = head.find("content-range");
  if (!range || !range->starts_with("bytes ")) {
    return std::nullopt;
  }
  const std::string first = range->substr(6, range->find('-') - 6);
  return number(&first);
}

/// `DONE of ALL bytes`.
std::string count_of(std::uint64_t done, const std::optional<std::uint64_t>& all) {
  return all ? fmt::format("{} of {} bytes", done, *all) : fmt::format("{} bytes", done);
}

Failure local(const Error& error) { return {.message = error.message}; }

}  // namespace

Try<RemoteFile> read_remote_file(std::string name, const Head& head) {
  const std::string* linked = head.find("x-linked-etag");
  const std::string* etag = linked ? linked : head.find("etag");
  const std::string_view plain = etag ? plain_etag(*etag) : std::string_view();
  if (!checksum_kind(plain)) {
    return hopeless("the hub names no checksum of it (ETag)");
  }
  // The length of a redirection is not the file's.
  const std::string* size = head.find("x-linked-size");
  if (!size && is_good(head.status)) {
    size = head.find("content-length");
  }
  RemoteFile file{.name = std::move(name), .etag = std::string(plain), .size = number(size)};
  if (file.size && *file.size > kMaxFileBytes) {
    return hopeless(fmt::format("it has {} bytes, which no such file has", *file.size));
  }
  return file;
}

Client::Client(Environment environment, ModelId id, int tries, std::stop_token stop)
    : environment_(std::move(environment)),
      id_(std::move(id)),
      tries_(tries),
      stop_(std::move(stop)),
      http_({.silence = environment_.silence,
             .ca_file = environment_.ca_file,
             .ca_folder = environment_.ca_folder,
             .stop = stop_}) {}

Result<> Client::check() const {
  if (!origin_of(environment_.endpoint)) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("HF_ENDPOINT: `{}` is no http or https URL", environment_.endpoint));
  }
  if (!std::ranges::all_of(environment_.token, [](char c) { return c > 0x20 && c < 0x7f; })) {
    return fail(ErrorCode::InvalidRequest, "HF_TOKEN: it has characters that no token has");
  }
  return {};
}

std::string Client::file_url(const std::string& commit, const std::string& name) const {
  return fmt::format("{}/{}/resolve/{}/{}", environment_.endpoint, id_.name, commit,
                     quote(name, "/"));
}

/// What an answer that is not good means; `what` was asked for.
Failure Client::refused(const Head& head, std::string_view what) const {
  const std::string* code = head.find("x-error-code");
  const bool gated = code && *code == "GatedRepo";
  const bool known = !environment_.token.empty();
  Failure failure;
  if (gated && known) {
    failure.message = fmt::format(
        "the model is gated and the token (HF_TOKEN) has no access: ask for it at {}/{}",
        environment_.endpoint, id_.name);
  } else if (gated) {
    failure.message = fmt::format("the model is gated: accept its terms at {}/{} and set HF_TOKEN",
                                  environment_.endpoint, id_.name);
  } else if (head.status == 401 && known) {
    failure.message = "there is no such model, or the token (HF_TOKEN) is not valid for it (401)";
  } else if (head.status == 401) {
    failure.message =
        "there is no such public model; for a private or gated one set HF_TOKEN (401)";
  } else if (head.status == 403) {
    failure.message = fmt::format("access is forbidden (403){}",
                                  known ? ", also with the token (HF_TOKEN)" : "; set HF_TOKEN");
  } else if (head.status == 404 && code && *code == "RevisionNotFound") {
    failure.message = fmt::format("the model has no revision `{}`", id_.revision);
  } else if (head.status == 404) {
    failure.message = fmt::format("there is no such {} (404)", what);
  } else {
    failure.message = fmt::format("the answer is status {}", head.status);
    failure.again = head.status == 408 || head.status == 429 || head.status >= 500;
    if (const auto seconds = number(head.find("retry-after"))) {
      failure.pause =
          std::min(kMaxPause, milliseconds(std::min<std::uint64_t>(*seconds, 60) * 1000));
    }
  }
  return failure;
}

/// Follows redirections; to other servers only when it may `leave` the hub. Only the hub gets to
/// see the token. What the hub says on the way about the file stays in the head.
Try<Head> Client::exchange(std::string url, const std::vector<std::string>& headers, bool leave,
                           const TakeBody& take) {
  const std::optional<std::string> home = origin_of(environment_.endpoint);
  std::vector<std::pair<std::string, std::string>> linked;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    std::vector<std::string> lines = headers;
    lines.emplace_back("User-Agent: fairlead");
    lines.emplace_back("Accept-Encoding: identity");
    if (!environment_.token.empty() && origin_of(url) == home) {
      lines.push_back("Authorization: Bearer " + environment_.token);
    }
    Try<Head> head = http_.exchange(url, lines, take);
    if (!head) {
      return head;
    }
    for (const auto& header : head->headers) {
      if (header.first.starts_with("x-linked-")) {
        linked.push_back(header);
      }
    }
    const std::string* location = is_redirect(head->status) ? head->find("location") : nullptr;
    if (location) {
      std::optional<std::string> next = follow(url, *location);
      if (!next) {
        return hopeless("a redirection leads to no URL that may be followed");
      }
      if (leave || origin_of(*next) == home) {
        url = std::move(*next);
        continue;
      }
    }
    std::erase_if(head->headers, [](const auto& h) { return h.first.starts_with("x-linked-"); });
    std::ranges::reverse(linked);  // the hub's first word counts
    head->headers.insert(head->headers.end(), linked.begin(), linked.end());
    return head;
  }
  return hopeless("there are too many redirections");
}

template <class T>
Result<T> Client::persist(const std::function<Try<T>()>& once,
                          const std::function<bool()>& progressed) {
  milliseconds pause = kFirstPause;
  int left = tries_;
  while (true) {
    Try<T> outcome = once();
    if (outcome) {
      if constexpr (std::is_void_v<T>) {
        return {};
      } else {
        return std::move(*outcome);
      }
    }
    if (progressed && progressed()) {
      left = tries_;
      pause = kFirstPause;
    }
    const Failure& failure = outcome.error();
    if (!failure.again || --left <= 0 || stop_.stop_requested()) {
      return fail(ErrorCode::InvalidRequest, failure.message);
    }
    log::warn("{}: {}; trying again", environment_.endpoint, failure.message);
    if (wait_for(stop_, std::max(pause, failure.pause))) {
      return fail(ErrorCode::InvalidRequest, "interrupted");
    }
    pause *= 2;
  }
}

Try<Listing> Client::list_once() {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}", environment_.endpoint,
                                      id_.name, quote(id_.revision));
  std::string text;
  const auto head = exchange(url, {}, true, [&](const Head& got, std::string_view bytes) -> Try<> {
    if (is_good(got.status)) {
      if (text.size() + bytes.size() > kMaxListBytes) {
        return hopeless("the list of its files is too long");
      }
      text += bytes;
    }
    return {};
  });
  if (!head) {
    return std::unexpected(head.error());
  }
  if (!is_good(head->status)) {
    return std::unexpected(refused(*head, "model"));
  }
  const Result<json::Value> document = json::parse(text);
  const json::Value* sha = document ? document->find("sha") : nullptr;
  const json::Value* files = document ? document->find("siblings") : nullptr;
  if (!sha || !sha->as_string() || !is_commit(*sha->as_string()) || !files || !files->as_array()) {
    return hopeless("the answer is no list of a model's files");
  }
  Listing listing{.commit = *sha->as_string(), .files = {}};
  for (const json::Value& file : *files->as_array()) {
    const json::Value* name = file.find("rfilename");
    if (name && name->as_string()) {
      listing.files.push_back(*name->as_string());
    }
  }
  return listing;
}

Result<Listing> Client::list() {
  return persist<Listing>([this] { return list_once(); });
}

Result<RemoteFile> Client::describe(const std::string& commit, const std::string& name) {
  return persist<RemoteFile>([&]() -> Try<RemoteFile> {
    const Try<Head> head = exchange(file_url(commit, name), {}, false, {});
    if (!head) {
      return std::unexpected(head.error());
    }
    if (!is_good(head->status) && !is_redirect(head->status)) {
      return std::unexpected(refused(*head, "file"));
    }
    return read_remote_file(name, *head);
  });
}

Try<> Client::fetch_once(const std::string& url, const RemoteFile& file, PartFile& part,
                         const std::function<void()>& on_bytes) {
  const std::uint64_t bound = file.size.value_or(kMaxFileBytes);
  if (part.size() > bound) {
    if (Result<> cleared = part.clear(); !cleared) {
      return std::unexpected(local(cleared.error()));
    }
  }
  const std::uint64_t offset = part.size();
  if (file.size && offset == *file.size) {
    return {};
  }
  std::vector<std::string> headers;
  if (offset > 0) {
    headers.push_back(fmt::format("Range: bytes={}-", offset));
  }
  bool begun = false;
  const auto head =
      exchange(url, headers, true, [&](const Head& got, std::string_view bytes) -> Try<> {
        if (!is_good(got.status)) {
          return {};
        }
        if (!std::exchange(begun, true)) {
          const bool whole = got.status != 206;
          const auto length = number(got.find("content-length"));
          if (whole && file.size && length && *length != *file.size) {
            return hopeless(fmt::format("the hub says {} bytes and sends {}", *file.size, *length));
          }
          if (!whole && range_start(got) != offset) {
            return hopeless("the answer begins at another place than asked for");
          }
          if (Result<> cleared = whole ? part.clear() : Result<>(); !cleared) {
            return std::unexpected(local(cleared.error()));
          }
        }
        if (bytes.size() > bound - part.size()) {
          return hopeless(fmt::format("the answer is longer than {} bytes", bound));
        }
        if (Result<> put = part.append(bytes); !put) {
          return std::unexpected(local(put.error()));
        }
        on_bytes();
        return {};
      });
  if (!head) {
    return std::unexpected(head.error());
  }
  if (head->status == 416) {  // there is no more than what is here, which is not the file then
    if (Result<> cleared = part.clear(); !cleared) {
      return std::unexpected(local(cleared.error()));
    }
    return passing("the file has another length than what is here");
  }
  if (!is_good(head->status)) {
    return std::unexpected(refused(*head, "file"));
  }
  if (file.size && part.size() < *file.size) {
    return passing(fmt::format("the answer ends after {}", count_of(part.size(), file.size)));
  }
  return {};
}

Result<> Client::fetch(const std::string& commit, const RemoteFile& file, PartFile& part,
                       const std::function<void()>& on_bytes) {
  const std::string url = file_url(commit, file.name);
  int wrong_sums = 0;
  std::uint64_t known = part.size();
  return persist<void>(
      [&]() -> Try<> {
        if (Try<> fetched = fetch_once(url, file, part, on_bytes); !fetched) {
          return fetched;
        }
        if (part.matches(file.etag)) {
          return {};
        }
        if (Result<> cleared = part.clear(); !cleared) {
          return std::unexpected(local(cleared.error()));
        }
        Failure failure{.message = fmt::format("the bytes do not have the checksum {}", file.etag),
                        .again = ++wrong_sums < kMaxWrongSums};
        return std::unexpected(std::move(failure));
      },
      [&] {
        const std::uint64_t now = part.size();
        return now > std::exchange(known, now) + kProgressBytes;
      });
}

}  // namespace fairlead::hub
