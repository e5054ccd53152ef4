// SPDX-License-Identifier: MIT
#include "actions/registry.hpp"
#include "ctl/verb.hpp"
#include "probes/registry.hpp"

int main(int argc, char** argv) { return p2pd::ctl::main(argc, argv, {p2pd::probes(), p2pd::actions()}); }
