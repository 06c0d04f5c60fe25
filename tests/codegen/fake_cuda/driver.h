// What the fake driver's device is like, and what it counts.
#pragma once

#include <cuda.h>

#include <map>
#include <set>
#include <string>
#include <vector>

struct FakeDevice {
  int major = 9;
  int minor = 0;
  int sms = 132;
  int smem_limit = 232448;
  int context = 1;  // the current context's id; 0: none
  int loads = 0;    // libraries that are loaded now
  CUresult launch_result = CUDA_SUCCESS;
  std::map<std::string, CUresult> fails;  // call, or call and attribute number -> what it returns
  std::vector<std::string> trace;         // calls that prepare a kernel, in order
  std::map<std::string, int> residency;  // image -> clusters; 66 where nothing is said
  std::set<std::string> missing;         // images that are not there
  std::set<std::string> refused;         // images that the driver does not load
  std::map<std::string, std::vector<int>> parameter_bytes;
};

extern FakeDevice fake;

// Notes a call and gives what it is to return.
CUresult called(const std::string& name);
