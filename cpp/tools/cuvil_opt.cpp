#include <iostream>

#include "tools/opt.hpp"

int main(int argc, char** argv) {
  return cuvil::run_opt(std::vector<std::string>(argv + 1, argv + argc), std::cin, std::cout, std::cerr);
}
