# lung.csv and pbc.csv: the data sets of the package survival, with the columns that are used here.
# SPDX-License-Identifier: Apache-2.0
suppressMessages(library(survival))

# status: 1 for those who died, 0 for those who were alive at the last visit.
lung_cases <- data.frame(time = lung$time, status = as.integer(lung$status == 2), age = lung$age, sex = lung$sex,
                         ph.ecog = lung$ph.ecog)
pbc_cases <- data.frame(time = pbc$time, status = as.integer(pbc$status == 2),
                        pbc[c("age", "edema", "bili", "protime", "albumin")])
write.csv(lung_cases, "lung.csv", row.names = FALSE, quote = FALSE)
# All digits: R writes 15, and the model needs no more.
write.csv(pbc_cases, "pbc.csv", row.names = FALSE, quote = FALSE)
