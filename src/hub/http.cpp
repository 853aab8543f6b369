#include "hub/http.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace fairlead::hub {
namespace {

constexpr long kConnectSeconds = 10;
// Slower than so many bytes per second counts as silence.
constexpr long kLeastRate = 64;
constexpr int kPollMilliseconds = 100;
constexpr std::size_t kMaxHeadBytes = std::size_t{64} << 10;

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

/// What runs.
struct Running {
  Head head;
  std::size_t head_bytes = 0;
  const TakeBody* take = nullptr;
  std::optional<Failure> refusal;
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& running = *static_cast<Running*>(user);
  const std::string_view line(data, size * count);
  running.head_bytes += line.size();
  if (running.head_bytes > kMaxHeadBytes) {
    running.refusal = Failure{.message = "the head of its answer is too large"};
    return 0;
  }
  // Another head begins: that of a proxy, or a provisional one, came before.
  if (line.starts_with("HTTP/")) {
    running.head = {};
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      std::from_chars(line.data() + space + 1, line.data() + line.size(), running.head.status);
    }
    return line.size();
  }
  if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    running.head.headers.emplace_back(std::move(name), trim(line.substr(colon + 1)));
  }
  return line.size();
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& running = *static_cast<Running*>(user);
  const std::string_view bytes(data, size * count);
  if (!running.take) {
    return bytes.size();
  }
  if (Try<> taken = (*running.take)(running.head, bytes); !taken) {
    running.refusal = std::move(taken.error());
    return bytes.empty() ? 1 : 0;
  }
  return bytes.size();
}

/// Whether another try may help.
bool is_passing(CURLcode code) {
  constexpr std::array kPassing{CURLE_COULDNT_RESOLVE_PROXY,
                                CURLE_COULDNT_RESOLVE_HOST,
                                CURLE_COULDNT_CONNECT,
                                CURLE_PARTIAL_FILE,
                                CURLE_OPERATION_TIMEDOUT,
                                CURLE_GOT_NOTHING,
                                CURLE_SEND_ERROR,
                                CURLE_RECV_ERROR,
                                CURLE_SSL_CONNECT_ERROR,
                                CURLE_HTTP2,
                                CURLE_HTTP2_STREAM};
  return std::ranges::find(kPassing, code) != kPassing.end();
}

}  // namespace

struct HttpClient::Handles {
  CURL* easy = nullptr;
  CURLM* multi = nullptr;
  std::array<char, CURL_ERROR_SIZE> reason{};
};

const std::string* Head::find(std::string_view name) const {
  const std::string* found = nullptr;
  for (const auto& [key, value] : headers) {
    found = key == name ? &value : found;
  }
  return found;
}

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), handles_(std::make_unique<Handles>()) {
  static const CURLcode prepared = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (prepared == CURLE_OK) {
    handles_->easy = curl_easy_init();
    handles_->multi = curl_multi_init();
  }
}

HttpClient::~HttpClient() {
  if (handles_->easy) {
    curl_easy_cleanup(handles_->easy);
  }
  if (handles_->multi) {
    curl_multi_cleanup(handles_->multi);
  }
}

Try<Head> HttpClient::exchange(const std::string& url, const std::vector<std::string>& headers,
                               const TakeBody& take) {
  CURL* easy = handles_->easy;
  CURLM* multi = handles_->multi;
  if (!easy || !multi) {
    return std::unexpected(Failure{.message = "libcurl cannot be used"});
  }
  curl_slist* lines = nullptr;
  for (const std::string& line : headers) {
    lines = curl_slist_append(lines, line.c_str());
  }
  const HeaderList owned(lines);
  Running running;
  running.take = take ? &take : nullptr;
  curl_easy_reset(easy);  // connections stay
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_NOBODY, take ? 0L : 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &running);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &running);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, handles_->reason.data());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, kLeastRate);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.silence.count()));
  if (!options_.ca_file.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_file.c_str());
  }
  if (!options_.ca_folder.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAPATH, options_.ca_folder.c_str());
  }
  handles_->reason.front() = '\0';

  curl_multi_add_handle(multi, easy);
  std::optional<CURLcode> ended;
  CURLMcode state = CURLM_OK;
  while (!ended && state == CURLM_OK && !options_.stop.stop_requested()) {
    int active = 0;
    state = curl_multi_perform(multi, &active);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) {
        ended = message->data.result;
      }
    }
    if (!ended && state == CURLM_OK) {
      state = curl_multi_poll(multi, nullptr, 0, kPollMilliseconds, nullptr);
    }
  }
  curl_multi_remove_handle(multi, easy);

  if (running.refusal) {
    return std::unexpected(std::move(*running.refusal));
  }
  if (options_.stop.stop_requested()) {
    return std::unexpected(Failure{.message = "interrupted"});
  }
  if (!ended || *ended != CURLE_OK) {
    const CURLcode code = ended.value_or(CURLE_FAILED_INIT);
    const std::string reason =
        handles_->reason.front() == '\0' ? curl_easy_strerror(code) : handles_->reason.data();
    return std::unexpected(Failure{.message = reason, .again = is_passing(code)});
  }
  return std::move(running.head);
}

}  // namespace fairlead::hub
