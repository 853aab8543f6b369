#include <array>

#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/tables.hpp"

int main(int argc, char** argv) {
  using namespace fairlead::cli;
  const auto commands = std::to_array<Command>({
      {"config", "Check serve's options, or print their documentation", "check|docs", serve_table(),
       run_config},
      {"version", "Print the version", "", {}, run_version},
  });
  return run_program(commands, argc, argv);
}
