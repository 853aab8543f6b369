#include "cli/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/descriptor.hpp"
#include "cli/arguments.hpp"
#include "cli/config_file.hpp"

namespace fairlead::cli {
namespace {

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string overview(std::span<const Command> commands) {
  std::string text =
      "Usage: fairlead COMMAND [OPTIONS]\n\n"
      "Stands between clients of the OpenAI API and a fleet of inference engines.\n\nCommands:\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  text += "\n`fairlead COMMAND --help` lists a command's options.\n";
  return text;
}

std::string_view config_path(const RawArguments& arguments, const OptionSpec& spec,
                             std::string& storage) {
  if (const auto flag = arguments.options.find(spec.name); flag != arguments.options.end()) {
    return storage = flag->second.back();
  }
  if (const auto variable = process_environment(environment_name(spec))) {
    return storage = *variable;
  }
  return {};
}

/// The commands that may have a table in a file. `config check` reads that of `serve`.
std::vector<std::string> file_tables(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name != "config") {
      names.emplace_back(command.name);
    }
  }
  return names;
}

Result<Settings> resolve(std::span<const Command> commands, const Command& command,
                         const RawArguments& arguments) {
  std::string path;
  std::vector<ConfigEntry> entries;
  if (const OptionSpec* spec = find_option(command.options, "config");
      spec && !config_path(arguments, *spec, path).empty()) {
    const Result<std::string> text = read_file(path);
    if (!text) {
      return std::unexpected(text.error());
    }
    // `config check` reads what `serve` would read.
    Result<std::vector<ConfigEntry>> parsed = parse_config(
        *text, command.name == "config" ? "serve" : command.name, file_tables(commands));
    if (!parsed) {
      return fail(ErrorCode::InvalidRequest, fmt::format("{}: {}", path, parsed.error().message));
    }
    entries = std::move(*parsed);
  }
  return Settings::resolve(command.options, arguments, process_environment, entries, path);
}

int run_command(std::span<const Command> commands, const Command& command,
                const std::vector<std::string>& arguments) {
  Result<RawArguments> raw = parse_arguments(command.options, arguments);
  if (!raw) {
    return report(command.name, raw.error());
  }
  if (raw->help) {
    const std::string text =
        help_text(command.name, command.summary, command.positional, command.options);
    std::fputs(text.c_str(), stdout);
    return kExitDone;
  }
  if (command.positional.empty() && !raw->positional.empty()) {
    return report(command.name,
                  {ErrorCode::InvalidRequest,
                   fmt::format("unexpected argument `{}`; see --help", raw->positional.front()),
                   {}});
  }
  const Result<Settings> settings = resolve(commands, command, *raw);
  return settings ? command.run(*settings) : report(command.name, settings.error());
}

}  // namespace

int exit_code(const Error& error) {
  return error.code == ErrorCode::InvalidRequest ? kExitUsage : kExitFailed;
}

std::string error_line(std::string_view command, const Error& error) {
  std::string line = fmt::format("fairlead {}: {}", command, error.message);
  for (char& c : line) {
    c = c == '\n' || c == '\r' ? ' ' : c;
  }
  line.push_back('\n');
  return line;
}

int report(std::string_view command, const Error& error) {
  std::fputs(error_line(command, error).c_str(), stderr);
  return exit_code(error);
}

namespace {

/// Opening and reading a device may do things; the null device does not.
bool is_readable_kind(const struct stat& file) {
  return S_ISREG(file.st_mode) || S_ISFIFO(file.st_mode) ||
         (S_ISCHR(file.st_mode) && file.st_rdev == makedev(1, 3));
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes,
                              std::chrono::milliseconds patience) {
  const auto refuse = [&](std::string_view reason) {
    return fail(ErrorCode::InvalidRequest, fmt::format("cannot read `{}`: {}", path, reason));
  };
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) {
    return refuse(std::strerror(errno));
  }
  if (!is_readable_kind(found)) {
    return refuse("it is neither a regular file nor a pipe");
  }
  // Opening a pipe that nobody writes to would block, and so would reading.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0) {
    return refuse(std::strerror(errno));
  }
  std::string text;
  std::array<char, 16384> buffer;
  while (true) {
    pollfd readable{.fd = file.get(), .events = POLLIN, .revents = 0};
    if (S_ISFIFO(found.st_mode) && poll(&readable, 1, static_cast<int>(patience.count())) == 0) {
      return refuse(fmt::format("nothing came out of the pipe for {} s",
                                std::chrono::duration<double>(patience).count()));
    }
    const ssize_t got = read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      return refuse(std::strerror(errno));
    }
    if (got == 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > max_bytes) {
      return refuse(fmt::format("it is longer than {} bytes", max_bytes));
    }
  }
  return text;
}

namespace {

// Started with a standard descriptor closed, the next socket would take its number and get what is
// meant for a person.
void reserve_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) {
      return;
    }
  }
}

int dispatch(std::span<const Command> commands, int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (arguments.empty()) {
    std::fputs(overview(commands).c_str(), stderr);
    return kExitUsage;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(overview(commands).c_str(), stdout);
    return kExitDone;
  }
  const std::string_view wanted = name == "--version" ? std::string_view("version") : name;
  for (const Command& command : commands) {
    if (command.name == wanted) {
      return run_command(commands, command, {arguments.begin() + 1, arguments.end()});
    }
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.emplace_back(command.name);
  }
  const std::string hint = closest_name(names, name);
  std::fputs(fmt::format("fairlead: unknown command `{}`{}\n", name,
                         hint.empty() ? std::string("; see fairlead --help")
                                      : fmt::format("; did you mean `{}`?", hint))
                 .c_str(),
             stderr);
  return kExitUsage;
}

}  // namespace

int run_program(std::span<const Command> commands, int argc, const char* const* argv) {
  reserve_standard_descriptors();
  const int code = dispatch(commands, argc, argv);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("fairlead: the output could not be written\n", stderr);
    return code == kExitDone ? kExitFailed : code;
  }
  return code;
}

}  // namespace fairlead::cli
